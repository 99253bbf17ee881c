"""Every loss, in several settings, against the loops of tests/reference/losses.py: values and gradients."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import Tensor

from longtail import losses
from longtail._typing import Reduction
from tests.reference import losses as loops

COUNTS = [500, 90, 7, 1, 90]
TARGET = [0, 3, 1, 2, 4, 0, 0, 3]


@dataclass(frozen=True)
class Case:
    function: Callable[..., Tensor]
    module: Callable[..., losses.LongTailLoss]
    loop: loops.RowLosses
    # The divisor of "mean" is the sum of these over the labels; None: the batch size.
    weights: list[float] | None = None


def case(
    function: Callable[..., Tensor],
    module: Callable[..., losses.LongTailLoss],
    loop: loops.RowLosses,
    weights: list[float] | None = None,
    **settings: object,
) -> Case:
    return Case(partial(function, **settings), partial(module, **settings), loop, weights)


EFFECTIVE = partial(loops.effective_number_weights, beta=0.999)
CASES = {
    "cross_entropy": case(losses.cross_entropy_loss, losses.CrossEntropyLoss, loops.cross_entropy),
    "balanced_softmax": case(losses.balanced_softmax_loss, losses.BalancedSoftmaxLoss, loops.balanced_softmax),
    "logit_adjustment": case(losses.logit_adjustment_loss, losses.LogitAdjustmentLoss, loops.logit_adjustment(1.0)),
    "logit_adjustment, strong": case(
        losses.logit_adjustment_loss, losses.LogitAdjustmentLoss, loops.logit_adjustment(2.5), strength=2.5
    ),
    "class_balanced": case(
        losses.class_balanced_loss,
        losses.ClassBalancedLoss,
        loops.weighted(loops.cross_entropy, EFFECTIVE),
        EFFECTIVE(COUNTS),
        beta=0.999,
    ),
    "class_balanced, inverse": case(
        losses.class_balanced_loss,
        losses.ClassBalancedLoss,
        loops.weighted(loops.cross_entropy, loops.inverse_frequency_weights),
        loops.inverse_frequency_weights(COUNTS),
        weighting="inverse_frequency",
    ),
    "focal": case(losses.focal_loss, losses.FocalLoss, loops.focal(2.0)),
    "focal, half": case(losses.focal_loss, losses.FocalLoss, loops.focal(0.5), gamma=0.5),
    "focal, weighted": case(
        losses.focal_loss,
        losses.FocalLoss,
        loops.weighted(loops.focal(1.5), EFFECTIVE),
        gamma=1.5,
        weighting="effective_number",
        beta=0.999,
    ),
    "ldam": case(losses.ldam_loss, losses.LDAMLoss, loops.ldam(0.5, 30.0)),
    "ldam, mild": case(losses.ldam_loss, losses.LDAMLoss, loops.ldam(0.3, 2.0), max_margin=0.3, scale=2.0),
    "label_aware_smoothing": case(
        losses.label_aware_smoothing_loss,
        losses.LabelAwareSmoothingLoss,
        loops.label_aware_smoothing(0.3, 0.0, "concave"),
    ),
    "label_aware_smoothing, linear": case(
        losses.label_aware_smoothing_loss,
        losses.LabelAwareSmoothingLoss,
        loops.label_aware_smoothing(0.4, 0.1, "linear"),
        head=0.4,
        tail=0.1,
        shape="linear",
    ),
    "label_aware_smoothing, convex": case(
        losses.label_aware_smoothing_loss,
        losses.LabelAwareSmoothingLoss,
        loops.label_aware_smoothing(0.4, 0.1, "convex"),
        head=0.4,
        tail=0.1,
        shape="convex",
    ),
    "vs": case(losses.vs_loss, losses.VSLoss, loops.vs(0.15, 1.25)),
    "vs, stretched": case(losses.vs_loss, losses.VSLoss, loops.vs(0.4, 0.5), stretch=0.4, shift=0.5),
}
each_case = pytest.mark.parametrize("name", CASES)


def reduced(row_losses: list[float], reduction: Reduction, divisor: float) -> list[float] | float:
    if reduction == "none":
        return row_losses
    return sum(row_losses) / divisor if reduction == "mean" else sum(row_losses)


def random_logits() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(len(TARGET), len(COUNTS), dtype=torch.float64, generator=generator)


@each_case
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_function_and_module_equal_the_loop(name: str, reduction: Reduction, dtype: torch.dtype) -> None:
    case, logits, target = CASES[name], random_logits(), torch.tensor(TARGET)
    divisor = sum(case.weights[y] for y in TARGET) if case.weights else len(TARGET)
    want = torch.tensor(
        reduced(case.loop(logits.tolist(), TARGET, COUNTS), reduction, divisor), dtype=torch.float64
    ).to(dtype)
    function = case.function(logits.to(dtype), target, class_counts=COUNTS, reduction=reduction)
    module = case.module(COUNTS, reduction=reduction)(logits.to(dtype), target)
    torch.testing.assert_close(function, want)
    torch.testing.assert_close(module, want)


@each_case
def test_the_gradient_equals_the_finite_differences_of_the_loop(name: str) -> None:
    case, logits, target = CASES[name], random_logits().requires_grad_(), torch.tensor(TARGET)
    (got,) = torch.autograd.grad(case.function(logits, target, class_counts=COUNTS, reduction="sum"), logits)
    step = 1e-6
    want = torch.zeros_like(logits)
    for i in range(len(TARGET)):
        for k in range(len(COUNTS)):
            rows = logits.tolist()
            rows[i][k] += step
            above = sum(case.loop(rows, TARGET, COUNTS))
            rows[i][k] -= 2 * step
            want[i, k] = (above - sum(case.loop(rows, TARGET, COUNTS))) / (2 * step)
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


@each_case
def test_gradcheck(name: str) -> None:
    case, logits, target = CASES[name], random_logits().requires_grad_(), torch.tensor(TARGET)
    assert torch.autograd.gradcheck(lambda z: case.function(z, target, class_counts=COUNTS), logits)


def test_every_registered_loss_has_a_loop() -> None:
    assert {name.split(",")[0] for name in CASES} == set(losses.LOSSES)
