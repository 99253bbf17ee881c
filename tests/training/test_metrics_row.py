from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, recall_score

from longtail.data import open_dataset
from longtail.training.metrics_row import metrics_row
from tests.support.image_folders import write_image_folders


def test_classes_that_are_not_validated_do_not_count(tmp_path: Path) -> None:
    data = open_dataset(write_image_folders(tmp_path, {"a": 200, "b": 40, "c": 30, "d": 5, "e": 2}))
    target = data.val.targets
    assert np.unique(target).tolist() == [0, 1, 2]
    logits = np.random.default_rng(0).normal(size=(len(target), 5)).astype(np.float32)
    logits[np.arange(len(target)), target] += 1
    row = metrics_row("val", logits, data)
    predicted = logits.argmax(1)
    recall = recall_score(target, predicted, labels=[0, 1, 2], average=None)
    assert row["val/accuracy"] == pytest.approx(accuracy_score(target, predicted))
    assert row["val/balanced"] == pytest.approx(recall.mean())
    assert row["val/accuracy_many"] == pytest.approx(recall[0])
    assert row["val/accuracy_medium"] == pytest.approx(recall[1:].mean())
    assert row["val/accuracy_few"] is None
