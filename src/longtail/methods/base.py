"""What a training method is: a small module that turns a batch into a loss, in plain torch.

    output = method(batch)          # loss, logits, parts
    output.loss.backward()

A method owns the model and its loss, so that one wrapper (DDP, compile) holds all that a step runs. It never
logs, prints, moves devices, builds optimisers or reads files: whoever trains does.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol

from torch import Tensor, nn

from longtail._registry import Registry
from longtail.class_counts import ClassCounts


class Batch(Protocol):
    """What a method reads of a batch: V views of each image, (B, C, H, W) each, and the labels (B,)."""

    @property
    def views(self) -> Sequence[Tensor]:
        """One tensor a view; weak before strong when there are two."""

    @property
    def target(self) -> Tensor:
        """Class indices, int64."""


class MethodOutput(NamedTuple):
    """What one training step gives.

    Attributes:
        loss: the scalar to go backward from.
        logits: (B, K), detached; what training accuracy is counted on.
        parts: the summands of the loss by name, detached scalars, for the log.
    """

    loss: Tensor
    logits: Tensor
    parts: Mapping[str, Tensor]


class Method(nn.Module):
    """The contract, which the tests hold for every name in `METHODS`:

    - `__init__(model, class_counts, *, ...)`, keyword arguments that a YAML file can hold.
    - `forward(batch)` is one training step up to the loss; `predict(images)` is inference.
    - `num_views` says how many views of an image a batch must carry.
    - `set_progress` tells the share of the training that is done, at the start of each epoch; all schedules
      hang on it.
    - `state_dict()` is the model's, under `model.`, plus what the method itself learns.

    Args:
        model: from images to logits; trained in place.
        class_counts: training images of each class.
    """

    num_views: ClassVar[int] = 1

    def __init__(self, model: nn.Module, class_counts: Sequence[int]) -> None:
        super().__init__()
        self.model = model
        self.class_counts = ClassCounts(class_counts)

    def forward(self, batch: Batch) -> MethodOutput:
        """One training step up to the loss."""
        raise NotImplementedError

    def predict(self, images: Tensor) -> Tensor:
        """Logits (B, K) of images (B, C, H, W), for inference; call `eval()` first."""
        logits: Tensor = self.model(images)
        return logits

    def set_progress(self, progress: float) -> None:
        """Say which share of the training is done, 0 to 1: a position and no step, as resuming needs."""
        if not 0 <= progress <= 1:
            raise ValueError(f"progress must be from 0 to 1, got {progress} (epoch / epochs)")

    def views_of(self, batch: Batch) -> Sequence[Tensor]:
        """The batch's views, once there are seen to be as many as the method needs."""
        if len(batch.views) != self.num_views:
            raise ValueError(
                f"batch.views must hold {self.num_views} view(s) of each image for {type(self).__name__}, "
                f"got {len(batch.views)} (set the number of views of the data)"
            )
        return batch.views


METHODS = Registry[type[Method]]("methods")
