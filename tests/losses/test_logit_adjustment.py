import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from longtail.losses import adjust_logits, balanced_softmax_loss, logit_adjustment_loss

COUNTS = [500, 90, 7, 1]


def test_strength_one_is_balanced_softmax() -> None:
    logits, target = torch.randn(12, 4), torch.arange(12) % 4
    torch.testing.assert_close(
        logit_adjustment_loss(logits, target, class_counts=COUNTS, reduction="none"),
        balanced_softmax_loss(logits, target, class_counts=COUNTS, reduction="none"),
    )


def test_the_loss_is_cross_entropy_of_logits_adjusted_the_other_way() -> None:
    logits, target = torch.randn(12, 4), torch.arange(12) % 4
    other_way = 2 * logits - adjust_logits(logits, class_counts=COUNTS, strength=0.7)
    torch.testing.assert_close(
        logit_adjustment_loss(logits, target, class_counts=COUNTS, strength=0.7),
        F.cross_entropy(other_way, target),
    )


def test_smoothing_without_adjustment_is_that_of_torch() -> None:
    logits, target = torch.randn(12, 4), torch.arange(12) % 4
    for reduction in ("none", "mean", "sum"):
        torch.testing.assert_close(
            logit_adjustment_loss(
                logits, target, class_counts=COUNTS, strength=0, label_smoothing=0.1, reduction=reduction
            ),
            F.cross_entropy(logits, target, label_smoothing=0.1, reduction=reduction),
        )


def test_smoothed_labels_follow_the_equation() -> None:
    logits, target, strength, smoothing = torch.randn(5, 4), torch.tensor([0, 1, 2, 3, 3]), 0.8, 0.2
    priors = [count / sum(COUNTS) for count in COUNTS]
    shares = [prior ** (0.75 * strength) for prior in priors]
    expected = []
    for row, label in zip(logits.tolist(), target.tolist(), strict=True):
        weights = [prior**strength * math.exp(logit) for prior, logit in zip(priors, row, strict=True)]
        wanted = [smoothing * share / sum(shares) + (1 - smoothing) * (k == label) for k, share in enumerate(shares)]
        expected.append(-sum(q * math.log(w / sum(weights)) for q, w in zip(wanted, weights, strict=True)))
    torch.testing.assert_close(
        logit_adjustment_loss(
            logits, target, class_counts=COUNTS, strength=strength, label_smoothing=smoothing, reduction="none"
        ),
        torch.tensor(expected),
    )


@pytest.mark.parametrize("counts", [[40, 1], [1000, 1], [300, 300, 300, 2], [200, 50, 10, 1, 1]])
def test_an_image_that_is_fitted_as_well_as_can_be_is_not_given_to_a_rarer_class(counts: list[int]) -> None:
    logits = torch.zeros(1, len(counts), requires_grad=True)
    solver = torch.optim.LBFGS([logits], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        solver.zero_grad()
        loss = logit_adjustment_loss(logits, torch.tensor([0]), class_counts=counts, label_smoothing=0.1)
        loss.backward()
        return loss

    solver.step(closure)
    others = logits.detach()[0, 1:]
    assert float(logits.detach()[0, 0] - others.max()) > 0.3


def test_post_hoc_adjustment_turns_a_posterior_into_the_likelihood() -> None:
    """Bayes: with true posteriors as logits, the adjusted softmax is p(x | y) up to the sum over y."""
    priors = np.array(COUNTS) / sum(COUNTS)
    likelihood = np.array([0.1, 0.2, 0.3, 0.9])
    posterior = likelihood * priors / (likelihood @ priors)
    adjusted = adjust_logits(torch.tensor(posterior).log()[None], class_counts=COUNTS)
    np.testing.assert_allclose(adjusted.softmax(dim=1)[0].numpy(), likelihood / likelihood.sum())


def test_post_hoc_adjustment_of_strength_zero_changes_nothing() -> None:
    logits = torch.randn(3, 4)
    assert torch.equal(adjust_logits(logits, class_counts=COUNTS, strength=0.0), logits)


def test_post_hoc_adjustment_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="one count per column of logits, 3, got 4"):
        adjust_logits(torch.zeros(1, 3), class_counts=COUNTS)
    with pytest.raises(ValueError, match=r"logits must have shape \(batch, classes\), got \(4,\)"):
        adjust_logits(torch.zeros(4), class_counts=COUNTS)
