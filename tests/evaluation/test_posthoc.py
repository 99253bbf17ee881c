import numpy as np
import pytest
import sklearn.metrics
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from longtail.evaluation import adjust_logits, choose_tau, evaluate, fit_temperature, scale_temperature
from tests.support.simulated_logits import simulate

VAL = simulate(50, images_per_class=10, seed=1)
TEST = simulate(50, images_per_class=20, seed=2)


def test_adjustment_subtracts_tau_log_prior() -> None:
    found = adjust_logits([[1.0, 2.0]], [90, 10], tau=0.5)
    np.testing.assert_allclose(found, [[1 - 0.5 * np.log(0.9), 2 - 0.5 * np.log(0.1)]])


def test_adjustment_with_tau_one_is_bayes_rule_for_a_balanced_prior() -> None:
    # From p(y|x) ∝ p(x|y) π_y, dividing by π_y leaves the class-conditional likelihood.
    prior, likelihood = np.array([0.9, 0.1]), np.array([[0.2, 0.7]])
    found = adjust_logits(np.log(likelihood * prior), [90, 10])
    np.testing.assert_allclose(np.exp(found), likelihood)


def test_a_class_without_training_images_cannot_be_adjusted() -> None:
    with pytest.raises(ValueError, match="class_counts must be at least 1 for logit adjustment, but class 1 has 0"):
        adjust_logits([[1.0, 2.0]], [5, 0])
    with pytest.raises(ValueError, match="one number for each of 2 classes, got 3"):
        adjust_logits([[1.0, 2.0]], [5, 1, 1])


def test_the_sweep_scores_every_tau_on_the_validation_images() -> None:
    _, choice = choose_tau(VAL.logits, VAL.target, TEST.logits, VAL.counts, taus=(0.0, 0.5, 1.0, 1.5))
    expected = [
        sklearn.metrics.balanced_accuracy_score(VAL.target, adjust_logits(VAL.logits, VAL.counts, tau).argmax(1))
        for tau in (0.0, 0.5, 1.0, 1.5)
    ]
    assert [score for _, score in choice.tried] == pytest.approx(expected)
    assert choice.value == (0.0, 0.5, 1.0, 1.5)[int(np.argmax(expected))]


def test_the_chosen_tau_is_applied_to_the_test_logits() -> None:
    adjusted, choice = choose_tau(VAL.logits, VAL.target, TEST.logits, VAL.counts)
    np.testing.assert_array_equal(adjusted, adjust_logits(TEST.logits, VAL.counts, choice.value))
    before = evaluate(TEST.logits, TEST.target, TEST.counts, replicates=5).balanced.value
    assert evaluate(adjusted, TEST.target, TEST.counts, replicates=5).balanced.value > before + 0.05
    assert str(choice) == (
        f"logit adjustment: tau = {choice.value:.4g}, chosen on 500 validation images by balanced accuracy"
    )


def test_of_equal_scores_the_smallest_change_is_chosen() -> None:
    _, choice = choose_tau([[9.0, 0.0], [0.0, 9.0]], [0, 1], [[0.0, 1.0]], [60, 40], taus=(1.0, 0.0, -0.5))
    assert choice.value == 0.0


def test_the_sweep_can_follow_top_1() -> None:
    _, choice = choose_tau([[1.0, 0.0]], [0], [[1.0, 0.0]], [9, 1], taus=(0.0, 1.0), criterion="top1")
    assert choice.tried == ((0.0, 1.0), (1.0, 0.0))
    assert choice.criterion == "top-1 accuracy"


def test_no_tau_is_refused() -> None:
    with pytest.raises(ValueError, match="taus must hold at least one"):
        choose_tau([[1.0, 0.0]], [0], [[1.0, 0.0]], [9, 1], taus=())


def test_temperature_minimises_the_likelihood_as_scipy_does() -> None:
    def loss(temperature: float) -> float:
        scores = log_softmax(VAL.logits.astype(np.float64) / temperature, axis=1)
        return float(-scores[np.arange(len(VAL.target)), VAL.target].mean())

    expected = minimize_scalar(loss, bounds=(0.05, 20), method="bounded", options={"xatol": 1e-8}).x
    assert fit_temperature(VAL.logits, VAL.target) == pytest.approx(expected, rel=1e-4)


def test_scaling_keeps_every_decision_and_undoes_a_known_temperature() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (20_000, 5))
    target = np.array([rng.choice(5, p=p) for p in np.exp(log_softmax(logits, axis=1))])  # calibrated labels
    scaled, choice = scale_temperature(3 * logits, target, 3 * logits)
    assert choice.value == pytest.approx(3, rel=0.05)
    np.testing.assert_array_equal(scaled.argmax(axis=1), logits.argmax(axis=1))
    assert evaluate(scaled, target, [5] * 5, replicates=5).ece.value < 0.02
    assert "chosen on 20,000 validation images by negative log-likelihood" in str(choice)


def test_a_validation_set_without_errors_gives_the_bound() -> None:
    assert fit_temperature([[2.0, 0.0], [0.0, 2.0]], [0, 1]) == 1e-3


def test_a_model_that_is_always_wrong_gives_a_high_temperature() -> None:
    assert fit_temperature([[2.0, 0.0], [0.0, 2.0]], [1, 0]) == pytest.approx(1e3, rel=1e-3)


def test_bad_validation_logits_are_named() -> None:
    with pytest.raises(ValueError, match="val_logits must be finite"):
        choose_tau([[np.nan, 0.0]], [0], [[1.0, 0.0]], [9, 1])
    with pytest.raises(ValueError, match="val_target must be 0 to 1, got 5"):
        choose_tau([[1.0, 0.0]], [5], [[1.0, 0.0]], [9, 1])


def test_the_temperature_by_class_is_that_of_the_images_repeated_until_classes_are_equal() -> None:
    generator = np.random.default_rng(3)
    target = np.array([0] * 30 + [1] * 10)
    logits = generator.normal(size=(40, 2)) + 2 * np.eye(2)[target]
    repeated = np.concatenate([np.arange(30), *[np.arange(30, 40)] * 3])
    assert fit_temperature(logits, target, by_class=True) == pytest.approx(
        fit_temperature(logits[repeated], target[repeated]), rel=1e-4
    )
