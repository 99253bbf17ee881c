"""The ladder's runs leave what the tables need, also when they fail."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import _record, ladder
from benchmarks.evidence import read_runs, table


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    """A small setting whose results go to a folder of its own."""
    monkeypatch.setattr(_record, "RESULTS", tmp_path)
    return argparse.Namespace(
        data="digits-lt:50",
        model="resnet8",
        epochs=1,
        batch_size=64,
        lr=0.05,
        weight_decay=5e-4,
        pixels=16,
        screen=False,
    )


def _run(setting: argparse.Namespace, out: Path) -> dict[str, Any]:
    ladder.run_one(setting, "cbn_sbn_dpl", "none", 3, out)
    (file,) = out.parent.glob("ladder/*.json")
    assert file.stem == ladder.job_name(setting, "cbn_sbn_dpl", "none", 3)
    record: dict[str, Any] = json.loads(file.read_text())
    return record


def test_a_run_is_recorded_with_its_command_and_its_last_epoch(setting: argparse.Namespace, tmp_path: Path) -> None:
    record = _run(setting, tmp_path / "run")
    assert record["split"] == "test"
    assert str(record["command"]).endswith("--pixels 16 --rows cbn_sbn_dpl --readings none --seeds 3")
    assert [record["accuracy"]["balanced"]] == list(record["balanced_by_epoch"].values())
    assert record["mixture"]["mixture/distance"] > 0.1


def test_a_run_that_diverges_is_recorded_as_such(setting: argparse.Namespace, tmp_path: Path) -> None:
    setting.lr = 1e30
    record = _run(setting, tmp_path / "run")
    assert "epoch 1" in str(record["diverged"])
    (rows,) = read_runs(tmp_path / "ladder").values()
    assert "| 1 | (1 diverged) |" in table(rows)[-1]


def test_every_row_takes_every_reading_where_its_compound_bn_is() -> None:
    plain = ladder._method("cbn", "default_two")
    decoupled = ladder._method("cbn_rs", "default_two")
    assert plain == {"name": "compound_bn", "compound": True, "split": False, "dual_path": False, "components": 2}
    assert decoupled["base_settings"] == {"split": False, "dual_path": False, "components": 2}
    assert "components" not in decoupled
    assert ladder._method("cbn_sbn_dpl_rw", "none")["base_settings"] == {}
