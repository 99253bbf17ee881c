"""The norm layers of a method's model: which to convert, and which have statistics that a stage may move."""

from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from longtail.nn import CompoundBatchNorm, convert_batch_norm

StatisticsLayer = CompoundBatchNorm | _BatchNorm


def statistics_layers(model: nn.Module) -> dict[str, StatisticsLayer]:
    """The batch norms of a model, plain or compound, by path."""
    return {path: module for path, module in model.named_modules() if isinstance(module, StatisticsLayer)}


def convert_norms(
    model: nn.Module, components: int, *, layers: Sequence[str] | None, momentum: float | None, **options: Any
) -> nn.Module:
    """`convert_batch_norm` for the batch norms at or under the paths `layers`, with a momentum of their own if given.

    Args:
        model: changed in place.
        components: M.
        layers: paths of modules; None for all. Each must have a batch norm.
        momentum: 0 to 1, or None to keep that of each batch norm.
        options: those of `convert_batch_norm`.
    """
    if momentum is not None and not 0 <= momentum <= 1:
        raise ValueError(f"momentum must be None or between 0 and 1, got {momentum}")
    paths = [path for path, module in model.named_modules() if isinstance(module, _BatchNorm)]
    for layer in layers or ():
        if not any(_is_under(path, layer) for path in paths):
            raise ValueError(
                f"layers must be paths of modules with batch norms, got {layer!r}; the model has {', '.join(paths)}"
            )
    converted = convert_batch_norm(
        model, components, select=lambda path, _: layers is None or any(_is_under(path, p) for p in layers), **options
    )
    if momentum is not None:
        for module in converted.modules():
            if isinstance(module, CompoundBatchNorm):
                module.momentum = momentum
    return converted


def _is_under(path: str, parent: str) -> bool:
    return path == parent or path.startswith(f"{parent}.")
