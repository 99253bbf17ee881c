import numpy as np
import pytest
from scipy.stats import binomtest, false_discovery_control, norm

from longtail.evaluation.mcnemar import holm, joint_half_widths, mcnemar


def test_half_widths_of_one_metric_are_those_of_the_normal_distribution() -> None:
    values = np.random.default_rng(0).normal(0.3, 0.02, (1, 20_000))
    assert joint_half_widths(values, level=0.95) == pytest.approx([norm.ppf(0.975) * 0.02], rel=0.03)


def test_joint_intervals_of_independent_metrics_follow_sidak() -> None:
    values = np.random.default_rng(0).normal(0, 1, (7, 20_000))
    expected = norm.ppf(0.5 + 0.95 ** (1 / 7) / 2)
    assert joint_half_widths(values, level=0.95) == pytest.approx([expected] * 7, rel=0.03)


def test_a_metric_that_never_moves_has_no_width() -> None:
    values = np.stack([np.zeros(1000), np.random.default_rng(0).normal(0, 1, 1000)])
    widths = joint_half_widths(values, level=0.95)
    assert widths[0] == 0
    assert widths[1] == pytest.approx(1.96, rel=0.1)


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (1, 0), (3, 9), (9, 3), (5, 5), (30, 60)])
def test_mcnemar_equals_the_binomial_test_of_scipy(gained: int, lost: int) -> None:
    expected = binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    assert mcnemar(gained, lost) == pytest.approx(expected)


def test_holm_corrects_as_published_and_no_less_strictly_than_benjamini_hochberg() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    p_values = np.random.default_rng(0).random(50) ** 3
    assert (np.array(holm(list(p_values))) >= false_discovery_control(p_values) - 1e-12).all()
