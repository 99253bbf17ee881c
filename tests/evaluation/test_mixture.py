import numpy as np
import pytest
from scipy.stats import entropy

from longtail.evaluation import MixtureLayer
from longtail.evaluation.mixture import collapse_sentence

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


def test_all_layers_make_one_sentence() -> None:
    assert collapse_sentence((HEALTHY,)) == "No layer has collapsed."
    assert collapse_sentence((HEALTHY, ONE_HEAVY)) == "1 of 2 layers have collapsed."
    assert collapse_sentence((ONE_HEAVY, THE_SAME)).startswith("Every layer has collapsed")


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"priors of a must sum to 1, got 0\.8"):
        MixtureLayer("a", (0.4, 0.4), APART)
    with pytest.raises(ValueError, match="distances of a must be 2 by 2"):
        MixtureLayer("a", (0.5, 0.5), ((0.0,),))
    with pytest.raises(ValueError, match="usage of a must have 2 components"):
        MixtureLayer("a", (0.5, 0.5), APART, usage=((1.0,), None))
