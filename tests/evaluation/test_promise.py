import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, log_loss
from torchmetrics.functional.classification import multiclass_calibration_error

from longtail.evaluation import Estimate, is_kept, measure_promise, verdict
from tests.support.simulated_logits import simulate

IMAGES = simulate(12, images_per_class=25, seed=3)
UNIFORM = np.full(12, 1 / 12)
PROBS = np.exp(IMAGES.logits) / np.exp(IMAGES.logits).sum(1, keepdims=True)


def test_under_equal_priors_it_is_what_other_libraries_say() -> None:
    import torch

    found = measure_promise(IMAGES.logits, IMAGES.target, UNIFORM)
    assert found.accuracy.value == pytest.approx(balanced_accuracy_score(IMAGES.target, IMAGES.logits.argmax(1)))
    assert found.nll.value == pytest.approx(log_loss(IMAGES.target, PROBS), rel=1e-5)
    expected = multiclass_calibration_error(
        torch.from_numpy(PROBS), torch.from_numpy(IMAGES.target), num_classes=12, n_bins=15, norm="l1"
    )
    assert found.ece.value == pytest.approx(float(expected), abs=1e-5)


def test_classes_weigh_their_prior_whatever_their_number_of_images() -> None:
    prior = np.array(IMAGES.counts.priors)
    some = np.concatenate([np.flatnonzero(IMAGES.target == k)[: 25 - 2 * k] for k in range(12)])
    found = measure_promise(IMAGES.logits[some], IMAGES.target[some], prior)
    right = IMAGES.logits[some].argmax(1) == IMAGES.target[some]
    recall = np.array([right[IMAGES.target[some] == k].mean() for k in range(12)])
    assert found.accuracy.value == pytest.approx((prior * recall).sum())


def test_images_below_the_confidence_are_not_answered() -> None:
    found = measure_promise(IMAGES.logits, IMAGES.target, UNIFORM, 0.7)
    sure = PROBS.max(1) >= 0.7
    assert found.answered.value == pytest.approx(sure.mean())
    assert found.precision is not None
    assert found.precision.value == pytest.approx((PROBS.argmax(1) == IMAGES.target)[sure].mean())
    assert measure_promise(IMAGES.logits, IMAGES.target, UNIFORM, 0.99999999).precision is None


def test_the_interval_covers_what_a_larger_set_of_images_has() -> None:
    truth = measure_promise(*_drawn(400, 0), UNIFORM).accuracy.value
    inside = 0
    for seed in range(1, 41):
        found = measure_promise(*_drawn(15, seed), UNIFORM, replicates=200).accuracy
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= truth <= found.high
    assert inside >= 34


def _drawn(images: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    target = np.repeat(np.arange(12), images)
    return rng.normal(0, 1, (len(target), 12)) + 2 * np.eye(12)[target], target


def test_all_right_has_wilsons_interval() -> None:
    found = measure_promise(10 * np.eye(4)[np.arange(20) % 4], np.arange(20) % 4, np.full(4, 0.25)).accuracy
    assert found.value == pytest.approx(1)
    assert found.high == pytest.approx(1)
    assert found.low == pytest.approx(0.8389, abs=1e-4)  # Wilson's for 20 of 20


def test_the_precision_of_one_answered_image_is_hardly_known() -> None:
    logits = np.full((40, 2), 0.1) * [1, 0]
    logits[3] = [9, 0]
    found = measure_promise(logits, np.arange(40) % 2, [0.5, 0.5], 0.9).precision
    assert found is not None
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(0.7935, abs=1e-3)  # Wilson's for 0 of 1


def test_a_promise_may_be_exceeded_or_broken() -> None:
    low, high = Estimate(0.5, 0.45, 0.55), Estimate(0.8, 0.75, 0.85)
    assert [verdict(low, low), verdict(low, high), verdict(high, low)] == ["kept", "exceeded", "broken"]
    assert verdict(low, high, lower_is_better=True) == "broken"
    assert verdict(high, low, lower_is_better=True) == "exceeded"


@pytest.mark.parametrize(
    ("promised", "held", "kept"),
    [
        (Estimate(0.8, 0.7, 0.9), Estimate(0.7, 0.6, 0.8), True),
        (Estimate(0.8, 0.75, 0.85), Estimate(0.7, 0.65, 0.75), False),
        (Estimate(0.7, 0.65, 0.75), Estimate(0.8, 0.75, 0.85), False),
        (Estimate(0.8, 0.73, 0.82), Estimate(0.7, 0.65, 0.78), True),
        (Estimate(0.8), Estimate(0.1, 0.0, 0.2), True),
    ],
)
def test_a_promise_is_kept_if_the_difference_is_within_its_interval(
    promised: Estimate, held: Estimate, kept: bool
) -> None:
    assert is_kept(promised, held) is kept
