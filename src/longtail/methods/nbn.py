"""Normalized batch norm with any loss: a control for compound batch norm.

    L = loss(model(x), y)

where the last norm of each block of the network's last stage is a `longtail.nn.NormalizedBatchNorm2d`: plain
statistics, and affine vectors of learned length. It changes the affine part of a few norms and nothing else, so it
tells whether a gain of `compound_bn` needs its mixture.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from longtail.methods.base import METHODS
from longtail.methods.erm import ERM
from longtail.models.split_stages import split_stages
from longtail.nn import convert_normalized_batch_norm

# Modules of a shortcut, whose norm is not the last of the block.
_SHORTCUTS = ("downsample", "shortcut")


@METHODS.register("nbn")
class NBN(ERM):
    """One view, one loss, affine vectors of learned length; see the module's docstring.

    Args:
        model: one that `split_stages` knows; some of its batch norms are converted and it is trained in place.
        class_counts: training images of each class.
        loss: a name in `LOSSES`.
        loss_settings: keyword arguments of that loss.
        view: a name in `VIEWS`.
        sampler: a name in `SAMPLERS`.

    Example:
        >>> from longtail.models import create_model
        >>> method = NBN(create_model("resnet8", 3), [500, 50, 5])
        >>> type(method.model.stage3[0].norm2).__name__
        'NormalizedBatchNorm2d'
    """

    passes = 1.0
    departures = ("weight and bias have a learned length each",)

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        loss: str = "balanced_softmax",
        loss_settings: Mapping[str, Any] | None = None,
        view: str = "strong",
        sampler: str = "instance",
    ) -> None:
        chosen = last_norms(model)
        converted = convert_normalized_batch_norm(model, select=lambda _, module: module in chosen)
        super().__init__(converted, class_counts, loss=loss, loss_settings=loss_settings, view=view, sampler=sampler)


def last_norms(model: nn.Module) -> list[nn.Module]:
    """The last batch norm of each block of the last stage, shortcuts apart.

    Args:
        model: one that `split_stages` knows.
    """
    found: list[nn.Module] = []
    for block in split_stages(model).stages[-1]:
        norms = [
            module
            for path, module in block.named_modules()
            if isinstance(module, _BatchNorm) and not any(part in _SHORTCUTS for part in path.split("."))
        ]
        found += norms[-1:]
    return found
