"""The classification loss of a method, from what a YAML file says of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from longtail.losses import LOSSES, LongTailLoss


def build_loss(loss: str, class_counts: Sequence[int], settings: Mapping[str, Any] | None) -> LongTailLoss:
    """The loss of that name with those keyword arguments, once it is seen to give one number a batch."""
    built = LOSSES[loss](class_counts, **(settings or {}))
    if built.reduction == "none":
        raise ValueError("loss_settings must not set reduction to 'none': a step needs one number")
    return built
