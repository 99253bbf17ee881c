import numpy as np
import pytest
import sklearn.metrics
from scipy.stats import binomtest

from longtail.evaluation.confusion_matrix import (
    balanced_accuracy,
    confusion_matrix,
    in_top_k,
    mean_over_support,
    precision_per_class,
    recall_per_class,
    wilson_interval,
)
from tests.support.simulated_logits import simulate

DATA = simulate(20, images_per_class=15)
PREDICTION = DATA.logits.argmax(axis=1)
CONFUSION = confusion_matrix(DATA.target, PREDICTION, 20)


def test_confusion_matrix_equals_sklearn() -> None:
    expected = sklearn.metrics.confusion_matrix(DATA.target, PREDICTION, labels=range(20))
    np.testing.assert_array_equal(CONFUSION, expected)


def test_recall_and_precision_equal_sklearn() -> None:
    precision, recall, _, _ = sklearn.metrics.precision_recall_fscore_support(
        DATA.target, PREDICTION, labels=range(20), zero_division=np.nan
    )
    np.testing.assert_allclose(recall_per_class(CONFUSION), recall)
    np.testing.assert_allclose(precision_per_class(CONFUSION), precision)


def test_balanced_accuracy_equals_sklearn() -> None:
    expected = sklearn.metrics.balanced_accuracy_score(DATA.target, PREDICTION)
    assert balanced_accuracy(CONFUSION) == pytest.approx(expected)


def test_a_class_without_test_images_is_left_out_of_the_mean_even_when_it_is_predicted() -> None:
    # sklearn leaves it out too, and says so in a warning.
    target, prediction = np.array([0, 0, 1]), np.array([0, 2, 1])
    confusion = confusion_matrix(target, prediction, 3)
    assert np.isnan(recall_per_class(confusion)[2])
    with pytest.warns(UserWarning, match="y_pred contains classes not in y_true"):
        expected = sklearn.metrics.balanced_accuracy_score(target, prediction)
    assert balanced_accuracy(confusion) == expected == 0.75


def test_a_class_never_predicted_has_no_precision() -> None:
    assert np.isnan(precision_per_class(confusion_matrix(np.array([0, 1]), np.array([0, 0]), 2))[1])


def test_a_mean_over_nothing_is_absent() -> None:
    assert mean_over_support(np.array([np.nan, np.nan])) is None


@pytest.mark.parametrize("k", [1, 3, 5])
def test_top_k_equals_sklearn(k: int) -> None:
    expected = sklearn.metrics.top_k_accuracy_score(DATA.target, DATA.logits, k=k, labels=range(20))
    assert in_top_k(DATA.logits, DATA.target, k).mean() == pytest.approx(expected)


def test_equal_logits_rank_by_index_so_that_top_1_agrees_with_argmax() -> None:
    logits = np.zeros((4, 4))
    target = np.arange(4)
    np.testing.assert_array_equal(in_top_k(logits, target, 1), logits.argmax(axis=1) == target)
    np.testing.assert_array_equal(in_top_k(logits, target, 3), [True, True, True, False])


@pytest.mark.parametrize(("successes", "trials"), [(0, 5), (5, 5), (3, 7), (80, 100)])
def test_wilson_interval_equals_scipy(successes: int, trials: int) -> None:
    low, high = wilson_interval(np.array([successes]), np.array([trials]))
    expected = binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    assert low[0] == pytest.approx(expected.low, abs=1e-6)
    assert high[0] == pytest.approx(expected.high, abs=1e-6)
