import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.metrics import balanced_accuracy_score

from longtail.evaluation import choose_decision
from longtail.evaluation.choose_decision import Wanted
from tests.support.simulated_logits import simulate

VAL = simulate(30, images_per_class=12, seed=1)
TEST = simulate(30, images_per_class=40, seed=2)
BY_HAND = Wanted(tau=0.0, temperature=1.0)


def test_tau_helps_where_the_prior_is_in_the_logits_and_is_small_where_it_is_not() -> None:
    found = choose_decision(VAL.logits, VAL.target, VAL.counts, Wanted(temperature=1.0))
    before, after = (
        balanced_accuracy_score(TEST.target, logits.argmax(1)) for logits in (TEST.logits, found.apply(TEST.logits))
    )
    assert found.tau > 0.3
    assert after > before + 0.03
    fair = simulate(30, images_per_class=12, seed=1, tau=1.0)
    assert choose_decision(fair.logits, fair.target, fair.counts, Wanted(temperature=1.0)).tau < found.tau / 2


def test_the_temperature_is_the_most_likely_one_when_each_class_counts_its_prior() -> None:
    prior = np.array(VAL.counts.priors)
    wanted = Wanted(tau=0.0, prior=VAL.counts.priors, prior_name="train")
    found = choose_decision(VAL.logits, VAL.target, VAL.counts, wanted)
    weights = prior[VAL.target] / np.bincount(VAL.target)[VAL.target]

    def loss(temperature: float) -> float:
        own = log_softmax(VAL.logits.astype(np.float64) / temperature + np.log(prior), axis=1)[
            np.arange(len(VAL.target)), VAL.target
        ]
        return -float((weights * own).sum())

    expected = minimize_scalar(loss, bounds=(0.1, 10), method="bounded", options={"xatol": 1e-8}).x
    assert found.temperature == pytest.approx(expected, rel=1e-4)


def test_the_threshold_is_the_smallest_that_reaches_the_precision() -> None:
    found = choose_decision(VAL.logits, VAL.target, VAL.counts, Wanted(tau=0.0, temperature=1.0, precision=0.9))
    confidence = np.exp(log_softmax(VAL.logits.astype(np.float64), axis=1)).max(1)
    right = VAL.logits.argmax(1) == VAL.target  # all classes have the same number of images: no weights
    assert right[confidence >= found.abstain_below].mean() >= 0.9
    lower = [c for c in confidence if c < found.abstain_below]
    assert lower
    assert all(right[confidence >= c].mean() < 0.9 for c in lower)


def test_a_precision_that_everything_reaches_needs_no_threshold() -> None:
    found = choose_decision([[9.0, 0.0], [0.0, 9.0]] * 5, [0, 1] * 5, [5, 5], Wanted(0.0, 1.0, precision=0.9))
    assert found.abstain_below == 0


def test_a_precision_out_of_reach_leaves_next_to_nothing() -> None:
    found = choose_decision([[9.0, 0.0], [0.0, 9.0]] * 5, [1, 0] * 5, [5, 5], Wanted(0.0, 1.0, precision=0.9))
    assert found.abstain_below > 0.999
    assert found.promised is not None
    assert found.promised.precision is None or found.promised.precision.value < 0.9


def test_set_by_hand_the_promise_is_the_measurement_itself() -> None:
    found = choose_decision(VAL.logits, VAL.target, VAL.counts, BY_HAND)
    assert found.promised == found.before
    assert found.promised is not None
    expected = balanced_accuracy_score(VAL.target, VAL.logits.argmax(1))
    assert found.promised.accuracy.value == pytest.approx(expected)


def test_the_promise_does_not_flatter_what_was_chosen_on_the_same_images() -> None:
    # Labels without any relation to the logits: whatever seems to help on the images that choose it is luck.
    rng = np.random.default_rng(0)
    target = np.repeat(np.arange(10), 4)
    promises = []
    for _ in range(20):
        logits = rng.normal(0, 3, (40, 10)).astype(np.float32)
        found = choose_decision(logits, target, VAL.counts[:10], Wanted(temperature=1.0))
        assert found.promised is not None
        promises.append(found.promised.accuracy.value)
    assert np.mean(promises) == pytest.approx(0.1, abs=0.03)


def test_one_image_is_enough_to_answer() -> None:
    found = choose_decision([[1.0, 0.0]], [0], [3, 1])
    assert found.promised is not None
    assert (found.promised.images, found.promised.accuracy.low) == (1, None)
