"""The classification loss of a method, from the words of a YAML file."""

from collections.abc import Mapping, Sequence
from typing import Any

from longtail.losses import LOSSES, LongTailLoss
from longtail.methods.base import resolved_arguments


def build_loss(loss: str, class_counts: Sequence[int], settings: Mapping[str, Any] | None) -> LongTailLoss:
    """The loss of that name with those keyword arguments; it must give one number for a batch."""
    built = LOSSES[loss](class_counts, **(settings or {}))
    if built.reduction == "none":
        raise ValueError("loss_settings must not set reduction to 'none': a step needs one number")
    return built


def loss_arguments(loss: LongTailLoss) -> dict[str, Any]:
    """The resolved keyword arguments of a loss, as `loss_settings` takes them."""
    return resolved_arguments(loss)
