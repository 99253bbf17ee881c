import math

import pytest
from scipy.stats import entropy

from longtail.class_counts import ClassCounts


def test_groups_follow_the_benchmark_thresholds() -> None:
    counts = ClassCounts([5000, 101, 100, 20, 19, 1, 0])
    assert counts.groups() == {"many": [0, 1], "medium": [2, 3], "few": [4, 5, 6]}


def test_an_empty_group_is_absent() -> None:
    assert ClassCounts([5000, 50]).groups() == {"many": [0], "medium": [1]}


def test_thresholds_that_overlap_are_refused() -> None:
    with pytest.raises(ValueError, match="few must be at most many"):
        ClassCounts([1, 2]).groups(many=10, few=12)


def test_imbalance_factor_ignores_classes_without_images() -> None:
    assert ClassCounts([500, 5, 0]).imbalance_factor == 100.0


def test_effective_classes_is_the_exponential_of_the_entropy() -> None:
    counts = [500, 50, 5, 0]
    assert ClassCounts(counts).effective_classes == pytest.approx(math.exp(entropy(counts)))
    assert ClassCounts([7] * 12).effective_classes == pytest.approx(12)


def test_priors_sum_to_one() -> None:
    assert ClassCounts([3, 1]).priors == (0.75, 0.25)
    with pytest.raises(ValueError, match="class_counts must count at least one image to have priors, got none"):
        _ = ClassCounts([0, 0]).priors


@pytest.mark.parametrize(("counts", "message"), [([], "at least one class"), ([3, -1], "zero or more, got -1")])
def test_bad_counts_are_refused(counts: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClassCounts(counts)
