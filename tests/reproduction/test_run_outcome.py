from pathlib import Path

import numpy as np
import pytest

from longtail.reproduction.run_outcome import Summary, accuracies
from longtail.training import load_run


def test_accuracies_are_those_of_the_run_s_report(digits_run: Path) -> None:
    metrics = load_run(digits_run).metrics
    found = accuracies(digits_run)
    assert set(found) == {"top1", "many", "medium", "few"}
    for name, value in found.items():
        assert value == pytest.approx(None if metrics[name] is None else 100 * (metrics[name] or 0.0))


def test_a_summary_is_mean_and_sample_deviation() -> None:
    values = [50.0, 52.5, 51.0]
    summary = Summary(dict(enumerate(values)), 53.31)
    assert summary.mean == pytest.approx(np.mean(values))
    assert summary.deviation == pytest.approx(np.std(values, ddof=1))
    assert summary.difference == pytest.approx(np.mean(values) - 53.31)


def test_one_seed_has_no_deviation_and_none_no_mean() -> None:
    assert Summary({0: 50.0}, None).deviation is None
    assert Summary({0: 50.0}, None).difference is None
    assert Summary({}, 53.31).mean is None
    assert Summary({}, 53.31).difference is None
