"""Mode normalization with any loss: a control for compound batch norm.

    L = loss(model(x), y)

with the batch norms of the model replaced by `longtail.nn.ModeNorm2d`: K sets of statistics, between which a learned
gate chooses for each image. Compound batch norm has a mixture of pixels, found by EM, with affine parameters for each
component. So what this gains over `erm` at the same loss is due to several modes, and what `compound_bn` gains over
this to how it finds and uses them.

Reference: Deecke et al., "Mode Normalization", ICLR 2019.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from longtail.methods.base import METHODS
from longtail.methods.erm import ERM
from longtail.nn import convert_mode_norm


@METHODS.register("mode_norm")
class ModeNorm(ERM):
    """One view, one loss, several modes; see the module's docstring.

    Args:
        model: from images to logits; its batch norms are converted and it is trained in place.
        class_counts: training images of each class.
        modes: K.
        loss: a name in `LOSSES`.
        loss_settings: keyword arguments of that loss.
        view: a name in `VIEWS`.
        sampler: a name in `SAMPLERS`.

    Example:
        >>> from longtail.models import create_model
        >>> method = ModeNorm(create_model("resnet8", 3), [500, 50, 5])
    """

    passes = 1.6

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        modes: int = 2,
        loss: str = "balanced_softmax",
        loss_settings: Mapping[str, Any] | None = None,
        view: str = "strong",
        sampler: str = "instance",
    ) -> None:
        converted = convert_mode_norm(model, modes)
        super().__init__(converted, class_counts, loss=loss, loss_settings=loss_settings, view=view, sampler=sampler)
        self.modes = modes
