"""The norm layers of a method's model: which to convert, and which have statistics that a stage may move."""

from collections.abc import Sequence

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from longtail.nn import CompoundBatchNorm, Reading, convert_batch_norm

StatisticsLayer = CompoundBatchNorm | _BatchNorm


def statistics_layers(model: nn.Module) -> dict[str, StatisticsLayer]:
    """The batch norms of a model, plain or compound, by path."""
    return {path: module for path, module in model.named_modules() if isinstance(module, StatisticsLayer)}


def convert_norms(
    model: nn.Module, components: int, *, layers: Sequence[str] | None, reading: str | Reading
) -> nn.Module:
    """`convert_batch_norm` for the batch norms at or under the paths `layers`.

    Args:
        model: changed in place.
        components: M.
        layers: paths of modules; None for all. Each must have a batch norm.
        reading: that of the layers.
    """
    paths = [path for path, module in model.named_modules() if isinstance(module, _BatchNorm)]
    for layer in layers or ():
        if not any(_is_under(path, layer) for path in paths):
            raise ValueError(
                f"layers must be paths of modules with batch norms, got {layer!r}; the model has {', '.join(paths)}"
            )

    def chosen(path: str, _: nn.Module) -> bool:
        return layers is None or any(_is_under(path, layer) for layer in layers)

    return convert_batch_norm(model, components, select=chosen, reading=reading)


def _is_under(path: str, parent: str) -> bool:
    return path == parent or path.startswith(f"{parent}.")
