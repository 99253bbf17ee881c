"""The reduction of losses that `F.cross_entropy` does not reduce itself."""

from typing import get_args

from torch import Tensor

from longtail._typing import Reduction


def check_reduction(reduction: str) -> None:
    """Raise unless `reduction` is one of torch's three."""
    if reduction not in get_args(Reduction):
        raise ValueError(f"reduction must be 'none', 'mean' or 'sum', got {reduction!r}")


def reduce_losses(losses: Tensor, reduction: Reduction) -> Tensor:
    """`losses` themselves, their mean or their sum."""
    if reduction == "none":
        return losses
    return losses.mean() if reduction == "mean" else losses.sum()
