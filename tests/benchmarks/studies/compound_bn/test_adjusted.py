"""Adjusted runs: as the run's own metric without an adjustment, and as the definition with one."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from benchmarks.studies.compound_bn.adjusted import adjusted
from longtail.evaluation import write_predictions
from longtail.training.run_folder.read import FinishedRun


def test_accuracy_by_strength_is_that_of_logits_less_the_log_priors_of_the_training_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    classes, counts = ["b", "a", "c"], [60, 30, 10]
    target = rng.integers(0, 3, 200)
    logits = rng.normal(size=(200, 3)).astype(np.float32) + np.eye(3, dtype=np.float32)[target]
    paths = [str(number) for number in range(200)]
    write_predictions(tmp_path / "predictions.csv", paths=paths, target=target, logits=logits, classes=classes)
    found = adjusted(FinishedRun(tmp_path, {}, {"classes": classes, "class_counts": counts}))
    for strength in (0.0, 0.1, 0.4):
        prediction = (logits - strength * np.log(np.divide(counts, 100))).argmax(1)
        assert found[f"{strength:.1f}"] == pytest.approx(balanced_accuracy_score(target, prediction))
    assert len(set(found.values())) > 3
