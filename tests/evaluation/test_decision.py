import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

from longtail.evaluation import adjust_logits, choose_decision, decide, read_decision
from longtail.evaluation.choose_decision import Wanted
from tests.support.simulated_logits import simulate

VAL = simulate(20, images_per_class=15, seed=1)


def test_without_parameters_nothing_changes() -> None:
    decision = decide(VAL.counts)
    np.testing.assert_array_equal(decision.apply(VAL.logits), VAL.logits)
    assert not decision.abstains(VAL.logits).any()
    assert (str(decision), decision.changes_labels) == ("as trained", False)


def test_the_probabilities_are_bayes_rule_for_the_new_prior() -> None:
    # p(y|x) ∝ p(x|y) π_y as trained; under the priors q it is p(x|y) q_y.
    likelihood, trained, new = np.array([[0.2, 0.7, 0.1]]), np.array([0.6, 0.3, 0.1]), np.array([0.1, 0.2, 0.7])
    decision = decide([60, 30, 10], tau=1.0, prior=new.tolist())
    expected = likelihood * new / (likelihood * new).sum()
    np.testing.assert_allclose(softmax(decision.apply(np.log(likelihood * trained)), axis=1), expected)


def test_tau_is_logit_adjustment_but_for_a_constant_and_the_temperature_comes_first() -> None:
    found = decide(VAL.counts, tau=0.7, temperature=2.0).apply(VAL.logits)
    expected = adjust_logits(VAL.logits / 2, VAL.counts, 0.7)
    np.testing.assert_allclose(softmax(found, axis=1), softmax(expected, axis=1), atol=1e-6)


def test_it_abstains_below_the_confidence() -> None:
    decision = decide([1, 1], abstain_below=0.8)
    logits = np.log([[0.79, 0.21], [0.81, 0.19]])
    assert decision.abstains(decision.apply(logits)).tolist() == [True, False]


def test_json_holds_all_of_it() -> None:
    wanted = Wanted(precision=0.9, prior=VAL.counts.priors, prior_name="train")
    decision = choose_decision(VAL.logits, VAL.target, VAL.counts, wanted)
    assert read_decision(json.loads(json.dumps(decision.as_json())), 20) == decision


@pytest.mark.parametrize(
    "content",
    [{}, None, [1], decide([1, 1]).as_json() | {"temperature": "hot"}, decide([1, 1]).as_json() | {"shift": [0.0]}],
)
def test_what_is_no_decision_is_refused(content: object) -> None:
    with pytest.raises(ValueError, match="decision must"):
        read_decision(content, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": 0.0}, "temperature must be above 0, got 0.0"),
        ({"tau": -1.0}, "tau must be 0 or more, got -1.0"),
        ({"abstain_below": 1.0}, "abstain_below must be at least 0 and less than 1, got 1.0"),
        ({"prior": [0.5, 0.6]}, "prior must have 2 shares of 0 or more that sum to 1"),
        ({"prior": [1.0]}, "prior must have 2 shares"),
    ],
)
def test_parameters_out_of_range(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decide([3, 1], **arguments)  # type: ignore[arg-type]  # on purpose


def test_a_class_of_prior_zero_is_never_predicted() -> None:
    prior = np.full(20, 1 / 19)
    prior[3] = 0
    found = decide(VAL.counts, prior=prior.tolist()).apply(VAL.logits)
    assert 3 in VAL.logits.argmax(1)
    assert 3 not in found.argmax(1)


def test_logits_of_another_number_of_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="a column for each of 2 classes, got 3"):
        replace(decide([1, 1])).apply([[1.0, 2.0, 3.0]])
