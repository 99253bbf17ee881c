import pytest
import torch

from longtail._typing import Reduction
from longtail.losses import negative_cosine_loss
from tests.reference import losses as loops


def pair() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 6, 5, dtype=torch.float64, generator=generator)
    return a.requires_grad_(), b.requires_grad_()


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_equals_the_loop(reduction: Reduction) -> None:
    prediction, goal = pair()
    rows = torch.tensor(loops.negative_cosine(prediction.tolist(), goal.tolist()), dtype=torch.float64)
    want = {"none": rows, "mean": rows.mean(), "sum": rows.sum()}[reduction]
    torch.testing.assert_close(negative_cosine_loss(prediction, goal, reduction=reduction), want)


def test_no_gradient_reaches_the_goal() -> None:
    prediction, goal = pair()
    gradients = torch.autograd.grad(negative_cosine_loss(prediction, goal), [prediction, goal], allow_unused=True)
    assert gradients[0].abs().sum() > 0
    assert gradients[1] is None


def test_gradcheck() -> None:
    prediction, goal = pair()
    assert torch.autograd.gradcheck(lambda p: negative_cosine_loss(p, goal), prediction)


def test_lengths_do_not_matter() -> None:
    prediction, goal = pair()
    torch.testing.assert_close(
        negative_cosine_loss(100 * prediction, 0.01 * goal), negative_cosine_loss(prediction, goal)
    )


def test_the_same_direction_gives_minus_one() -> None:
    prediction, _ = pair()
    assert negative_cosine_loss(prediction, prediction).item() == pytest.approx(-1)


def test_a_row_of_zeros_gives_zero_and_a_finite_gradient() -> None:
    prediction = torch.zeros(1, 5, requires_grad=True)
    value = negative_cosine_loss(prediction, torch.zeros(1, 5))
    (gradient,) = torch.autograd.grad(value, prediction)
    assert value == 0
    assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    large = torch.full((1, 64), 1000.0, dtype=dtype)  # the square overflows float16
    value = negative_cosine_loss(large, large)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(-1)


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the same shape \(batch, features\), got \(2, 3\) and \(2, 4\)"):
        negative_cosine_loss(torch.zeros(2, 3), torch.zeros(2, 4))
