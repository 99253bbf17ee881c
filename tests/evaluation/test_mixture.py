import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform
from scipy.stats import entropy

from longtail.evaluation import MixtureLayer

APART = ((0.0, 1.0), (1.0, 0.0))
HEALTHY = MixtureLayer("bn1", (0.6, 0.4), APART)
ONE_HEAVY = MixtureLayer("bn2", (0.999, 0.001), APART)
THE_SAME = MixtureLayer("bn3", (0.5, 0.5), ((0.0, 1e-6), (1e-6, 0.0)))


def test_effective_components_are_the_exponential_of_the_entropy() -> None:
    assert HEALTHY.effective_components == pytest.approx(np.exp(entropy([0.6, 0.4])))
    assert MixtureLayer("x", (1.0, 0.0), APART).effective_components == 1


def test_a_collapsed_mixture_is_named() -> None:
    assert HEALTHY.collapse is None
    assert ONE_HEAVY.collapse == "collapsed: one component has 99.9% of the mass"
    assert THE_SAME.collapse == "collapsed: all components are the same"


def test_one_component_is_no_collapse() -> None:
    single = MixtureLayer("x", (1.0,), ((0.0,),))
    assert single.collapse is None
    assert single.nearest is None
    assert single.mean_distance is None


def test_the_mean_distance_is_that_of_the_pairs() -> None:
    points = np.random.default_rng(0).normal(size=(4, 3))
    matrix = tuple(tuple(row) for row in squareform(pdist(points, "cityblock") / 3).tolist())
    layer = MixtureLayer("x", (0.25,) * 4, matrix)
    assert layer.mean_distance == pytest.approx(pdist(points, "cityblock").mean() / 3)
    assert layer.nearest == pytest.approx(pdist(points, "cityblock").min() / 3)


def test_the_use_by_a_group_is_the_mean_over_its_classes_that_were_seen() -> None:
    layer = MixtureLayer("x", (0.5, 0.5), APART, ((0.2, 0.8), None, (0.6, 0.4)))
    assert layer.use_by([0, 1, 2]) == pytest.approx((0.4, 0.6))
    assert layer.use_by([2, 7]) == (0.6, 0.4)
    assert layer.use_by([1]) is None


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"priors of a must sum to 1, got 0\.8"):
        MixtureLayer("a", (0.4, 0.4), APART)
    with pytest.raises(ValueError, match="distances of a must be 2 by 2"):
        MixtureLayer("a", (0.5, 0.5), ((0.0,),))
    with pytest.raises(ValueError, match="usage of a must have 2 components"):
        MixtureLayer("a", (0.5, 0.5), APART, usage=((1.0,), None))
