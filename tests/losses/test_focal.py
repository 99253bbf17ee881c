from functools import partial

import pytest
import torch
from torchvision.ops import sigmoid_focal_loss

from longtail._typing import Reduction
from longtail.losses import class_weights, focal_loss


@pytest.mark.parametrize("gamma", [0.5, 2.0])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_equals_torchvision_where_the_definitions_meet(gamma: float, reduction: Reduction) -> None:
    """Two classes with logits (0, x) are one sigmoid of x, without torchvision's alpha (-1)."""
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(32, generator=generator)
    target = torch.randint(2, (32,), generator=generator)
    logits = torch.stack([torch.zeros_like(x), x], dim=1)
    torch.testing.assert_close(
        focal_loss(logits, target, gamma=gamma, reduction=reduction),
        sigmoid_focal_loss(x, target.float(), alpha=-1, gamma=gamma, reduction=reduction),
    )


def test_a_weight_scales_the_loss_and_leaves_the_focal_factor_alone() -> None:
    logits, target, counts = torch.randn(8, 3), torch.arange(8) % 3, [900, 30, 1]
    plain = focal_loss(logits, target, reduction="none")
    weighted = focal_loss(logits, target, class_counts=counts, weighting="effective_number", reduction="none")
    torch.testing.assert_close(weighted, class_weights(counts)[target] * plain)


def test_mean_divides_a_weighted_loss_by_the_batch_size() -> None:
    logits, target, counts = torch.randn(8, 3), torch.arange(8) % 3, [900, 30, 1]
    loss = partial(focal_loss, logits, target, class_counts=counts, weighting="inverse_frequency")
    torch.testing.assert_close(loss(reduction="mean"), loss(reduction="sum") / 8)


@pytest.mark.parametrize("gamma", [0.0, 0.25, 1.0, 5.0])
def test_the_gradient_is_finite_where_the_probability_rounds_to_one(gamma: float) -> None:
    logits = torch.tensor([[1e4, 0.0], [0.0, 1e4]], requires_grad=True)
    (gradient,) = torch.autograd.grad(focal_loss(logits, torch.tensor([0, 0]), gamma=gamma), logits)
    assert gradient.isfinite().all()
    assert (gradient[0] == 0).all()


def test_weights_need_counts() -> None:
    with pytest.raises(ValueError, match="class_counts must be given for weighting='effective_number'"):
        focal_loss(torch.zeros(1, 2), torch.tensor([0]), weighting="effective_number")
