"""The score of a run against scikit-learn's balanced accuracy."""

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from benchmarks.studies.folders.score import class_means, labels_of, score

TRAIN, TEST = [300, 101, 100, 20, 19, 3], [7, 4, 9, 5, 6, 8]


def test_equals_the_balanced_accuracy_of_scikit_learn_for_all_classes_and_by_group() -> None:
    labels = labels_of(TEST)
    predictions = np.random.default_rng(0).integers(6, size=len(labels))
    found = score(predictions.tolist(), TEST, TRAIN)
    assert found["balanced"] == pytest.approx(balanced_accuracy_score(labels, predictions))
    for group, classes in {"many": [0, 1], "medium": [2, 3], "few": [4, 5]}.items():
        recalls = [(predictions[labels == k] == k).mean() for k in classes]
        assert found[group] == pytest.approx(np.mean(recalls))


def test_a_group_without_classes_is_absent() -> None:
    assert set(score([0, 1], [1, 1], [5, 3])) == {"balanced", "few"}


def test_class_means_equal_a_loop_over_classes_for_every_row() -> None:
    values = np.random.default_rng(1).random((3, sum(TEST)))
    expected = [[row[labels_of(TEST) == k].mean() for k in range(6)] for row in values]
    np.testing.assert_allclose(class_means(values, TEST), expected)
