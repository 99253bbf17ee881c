"""Runs of several seeds: they differ in the seed alone, and their spread is that of numpy."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from longtail._errors import UsageError
from longtail.evaluation.report import SeedSummary, render_seeds
from longtail.training.stop_request import StoppedError
from longtail.training.train_seeds import train_seeds
from tests.support.tiny_runs import Interrupt, config
from tests.training.test_finish_run import stop


def test_seeds_that_were_stopped_go_on_and_report_mean_and_spread(tmp_path: Path) -> None:
    out = tmp_path / "group"
    with pytest.raises(StoppedError, match=r"--resume auto --out"):
        train_seeds(config(epochs=1, seed=3), 2, out=out, callback=Interrupt(6, stop))
    group = train_seeds(config(epochs=1, seed=3), 2, out=out, resume=True)
    assert [run.path.name for run in group.runs] == ["seed-3", "seed-4"]
    settings = [yaml.safe_load((run.path / "config.yaml").read_text()) for run in group.runs]
    assert [found.pop("seed") for found in settings] == [3, 4]
    assert settings[0] == settings[1]
    values = [run.metrics["balanced"] for run in group.runs]
    assert group.summary.spreads["balanced"].mean == pytest.approx(np.mean(np.array(values, float)))
    assert group.summary.spreads["balanced"].deviation == pytest.approx(np.std(np.array(values, float), ddof=1))
    assert f"over {len(values)} seeds" in (out / "seeds.html").read_text()
    with pytest.raises(UsageError, match="already exists"):
        train_seeds(config(epochs=1), 2, out=out)


def test_a_metric_that_a_run_lacks_has_no_spread_and_names_stay_text() -> None:
    bad = "<script>alert(1)</script>"
    runs: dict[str, dict[str, float | None]] = {
        f"a/{bad}": {"balanced": 0.5, "few": None},
        "a/b": {"balanced": 0.7, "few": 0.1},
    }
    summary = SeedSummary(bad, bad, runs, 10)
    assert list(summary.spreads) == ["balanced"]
    assert bad not in render_seeds(summary)
    assert "60.0 ± 14.1" in render_seeds(summary)
