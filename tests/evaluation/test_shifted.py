import numpy as np
import pytest

from longtail.evaluation import shifted_accuracy, shifted_prior
from tests.support.simulated_logits import simulate

DATA = simulate(20, images_per_class=50)


def test_forward_prior_falls_from_the_largest_class_by_the_imbalance_factor() -> None:
    prior = shifted_prior([5, 500, 50], "forward", 25)
    np.testing.assert_allclose(prior / prior.min(), [1, 25, 5])
    assert prior.sum() == pytest.approx(1)


def test_backward_prior_is_the_forward_one_turned_round() -> None:
    forward, backward = (shifted_prior([5, 500, 50], way, 25) for way in ("forward", "backward"))
    np.testing.assert_allclose(backward[[0, 2, 1]], forward[[1, 2, 0]])


def test_accuracy_is_the_mean_over_drawn_test_sets() -> None:
    correct = DATA.logits.argmax(axis=1) == DATA.target
    prior = shifted_prior(DATA.counts, "backward", 10)
    keep = (50 * prior / prior.max() + 1e-9).astype(int)  # of 50 test images of each class
    drawn = []
    for seed in range(300):
        generator = np.random.default_rng(seed)
        rows = [generator.permutation(np.flatnonzero(DATA.target == k))[: keep[k]] for k in range(20)]
        drawn.append(correct[np.concatenate(rows)].mean())
    (found,) = (
        s
        for s in shifted_accuracy(DATA.logits, DATA.target, DATA.counts, model_prior="train")
        if (s.direction, s.imbalance_factor) == ("backward", 10)
    )
    assert found.accuracy == pytest.approx(np.mean(drawn), abs=0.01)  # whole images: q is met to 1/50


def test_a_known_prior_helps_and_the_uniform_one_is_logit_adjustment() -> None:
    results = shifted_accuracy(DATA.logits, DATA.target, DATA.counts, model_prior="train")
    assert [(s.direction, s.imbalance_factor) for s in results][4:7] == [
        ("forward", 2.0),
        ("uniform", 1.0),
        ("backward", 2.0),
    ]
    assert results[-1].accuracy_known_prior > results[-1].accuracy + 0.05
    adjusted = DATA.logits - np.log(DATA.counts.priors)
    assert results[5].accuracy_known_prior == pytest.approx((adjusted.argmax(1) == DATA.target).mean())


def test_a_model_of_the_uniform_prior_keeps_its_answers_on_a_uniform_test_set() -> None:
    results = shifted_accuracy(DATA.logits, DATA.target, DATA.counts, model_prior="uniform")
    assert results[5].accuracy_known_prior == results[5].accuracy


def test_classes_without_test_images_are_left_out() -> None:
    kept = DATA.target != 0
    results = shifted_accuracy(DATA.logits[kept], DATA.target[kept], DATA.counts, model_prior="uniform")
    correct = (DATA.logits.argmax(1) == DATA.target)[kept]
    assert results[5].accuracy == pytest.approx(correct.mean())


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"imbalance_factor must be at least 1, got 0\.01 \(did you mean 100\?\)"):
        shifted_prior([5, 1], "forward", 0.01)
    with pytest.raises(ValueError, match=r"imbalance_factor must be at least 1, got 0$"):
        shifted_prior([5, 1], "forward", 0)
    with pytest.raises(ValueError, match="class_counts must be at least 1 with model_prior='train'"):
        shifted_accuracy([[1.0, 0.0]], [0], [5, 0], model_prior="train")
