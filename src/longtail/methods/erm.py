"""Empirical risk minimisation: one view, one loss. The baseline, and the frame for any loss and any sampler.

    L = loss(model(x), y)

with images x, labels y and any name in `LOSSES`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from longtail.data.views import Batch
from longtail.methods._losses import build_loss, loss_arguments
from longtail.methods.base import METHODS, Method, MethodOutput, sum_parts


@METHODS.register("erm")
class ERM(Method):
    """One view, one loss.

    Args:
        model: from images to logits; trained in place.
        class_counts: training images of each class.
        loss: a name in `LOSSES`.
        loss_settings: keyword arguments of that loss, such as `{"strength": 1.5}`.
        view: a name in `VIEWS`: the view to train on; "strong" is what the paper's Baseline does.
        sampler: a name in `SAMPLERS`: "instance" shows each image once an epoch.

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
        view: str = "strong",
        sampler: str = "instance",
    ) -> None:
        super().__init__(model, class_counts, views=(view,), samplers=(sampler,))
        self.loss, self.view, self.sampler = loss, view, sampler
        self.criterion = build_loss(loss, self.class_counts, loss_settings)
        self.loss_settings = loss_arguments(self.criterion)

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of one batch."""
        (batch,) = batches
        (images,) = self.views_of(batch)
        logits = self.model(images)
        return sum_parts(logits, {"classification": self.criterion(logits, batch.target)})

    def set_progress(self, progress: float) -> None:
        """Hand the position to the loss, which may have a schedule."""
        super().set_progress(progress)
        self.criterion.set_progress(progress)
