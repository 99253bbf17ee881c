"""The tables of the study of folders: right numbers, right pairs, and a page made of the committed records."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from benchmarks.record import read_records
from benchmarks.studies.folders.score import labels_of, score
from benchmarks.studies.folders.table import HERE, difference, fill, table, tables

TRAIN, TEST = [200, 50, 5], [30, 30, 30]


def _run(peer: str, seed: int, right: float, **metrics: float) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    labels = labels_of(TEST)
    predictions = np.where(generator.random(len(labels)) < right, labels, (labels + 1) % 3).tolist()
    return {
        "set": "plants",
        "peer": peer,
        "seed": seed,
        "class_counts": TRAIN,
        "test_counts": TEST,
        "predictions": predictions,
        "metrics": score(predictions, TEST, TRAIN) | {"core_seconds": 190.0} | metrics,
    }


def test_a_row_has_the_mean_and_the_standard_deviation_over_seeds() -> None:
    runs = [_run("fastai", seed, 0.7) for seed in range(3)]
    values = [100 * run["metrics"]["balanced"] for run in runs]
    assert f"| 3 | {np.mean(values):.1f} ± {np.std(values, ddof=1):.1f} |" in table({"fastai": runs})


def test_the_difference_has_an_interval_near_that_of_a_paired_bootstrap_of_scipy() -> None:
    first, second = [_run("longtail", 0, 0.9)], [_run("fastai", 1, 0.6)]
    right = [np.equal(run[0]["predictions"], labels_of(TEST)).astype(float) for run in (first, second)]
    gap = (right[0] - right[1]).reshape(3, 30)
    expected = stats.bootstrap(
        tuple(gap),
        lambda *rows, axis: np.mean([row.mean(axis=axis) for row in rows], axis=0),
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(5),
    ).confidence_interval
    value, low, high = difference(first, second, "balanced")
    assert value == pytest.approx(first[0]["metrics"]["balanced"] - second[0]["metrics"]["balanced"])
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.02)


def test_equal_runs_have_no_difference() -> None:
    runs = [_run("longtail", seed, 0.7) for seed in range(3)]
    assert difference(runs, runs, "few") == (0, 0, 0)


def test_the_difference_of_a_group_is_that_of_its_classes() -> None:
    first, second = [_run("longtail", 0, 0.9)], [_run("fastai", 1, 0.6)]
    expected = first[0]["metrics"]["few"] - second[0]["metrics"]["few"]
    assert difference(first, second, "few")[0] == pytest.approx(expected)


def test_the_best_peer_stands_first_and_core_seconds_are_those_of_the_training() -> None:
    rows = table(
        {"fastai": [_run("fastai", 0, 0.3, core_seconds_training=181.0)], "longtail": [_run("longtail", 1, 0.9)]}
    ).splitlines()
    assert rows[2].startswith("| **longtail** | 1 |")
    assert "| 190 |" in rows[2]
    assert "| 181 |" in rows[3]


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="must have the lines"):
        fill("# A page", "text")


def test_the_page_is_made_of_the_committed_records() -> None:
    page = (HERE / "README.md").read_text(encoding="utf-8")
    assert fill(page, tables(read_records(HERE / "results.jsonl"))) == page
