"""Empirical risk minimisation: one view, one loss. The baseline, and the frame for any loss and any sampler.

    L = loss(model(x), y)

with images x, labels y and any name in `LOSSES`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from longtail.losses import LOSSES
from longtail.methods.base import METHODS, Batch, Method, MethodOutput


@METHODS.register("erm")
class ERM(Method):
    """One view, one loss.

    Args:
        model: from images to logits; trained in place.
        class_counts: training images of each class.
        loss: a name in `LOSSES`.
        loss_settings: keyword arguments of that loss, such as `{"strength": 1.5}`.

    Example:
        >>> from longtail.models import create_model
        >>> method = ERM(create_model("resnet8", 3), [500, 50, 5], loss="balanced_softmax")
    """

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        loss: str = "cross_entropy",
        loss_settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model, class_counts)
        self.loss = LOSSES[loss](self.class_counts, **(loss_settings or {}))
        if self.loss.reduction == "none":
            raise ValueError("loss_settings must not set reduction to 'none': a step needs one number")

    def forward(self, batch: Batch) -> MethodOutput:
        """One training step up to the loss."""
        (images,) = self.views_of(batch)
        logits = self.model(images)
        loss = self.loss(logits, batch.target)
        return MethodOutput(loss, logits.detach(), {"classification": loss.detach()})

    def set_progress(self, progress: float) -> None:
        """Hand the position to the loss, which may have a schedule."""
        super().set_progress(progress)
        self.loss.set_progress(progress)
