"""What a training method is: a small module that turns a batch into a loss, in plain torch.

    output = method(batch)          # loss, logits, parts
    output.loss.backward()

A method owns the model and its loss, so that one wrapper (DDP, compile) holds all that a step runs. It never
logs, prints, moves devices, builds optimisers or reads files: whoever trains does.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol

from torch import Tensor, nn

from longtail._registry import Registry
from longtail.class_counts import ClassCounts

VIEWS = ("weak", "strong")


class Batch(Protocol):
    """What a method reads of a batch: V views of each image, (B, C, H, W) each, and the labels (B,)."""

    @property
    def views(self) -> Sequence[Tensor]:
        """One tensor a view, in the order of the method's `views`."""

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


class Method(nn.Module, ABC):
    """The contract, which the tests hold for every name in `METHODS`:

    - `__init__(model, class_counts, *, ...)`, keyword arguments that a YAML file can hold.
    - `forward(batch)` is one training step up to the loss; `predict(images)` is inference.
    - `set_progress` tells the share of the training that is done, at the start of each epoch and right after
      `load_state_dict`; all schedules hang on it. Telling the same twice is telling it once.
    - `state_dict()` is the model's, under `model.`, plus what the method itself learns. With it and
      `set_progress` a method made anew with the same arguments goes on exactly.

    Args:
        model: from images to logits; trained in place.
        class_counts: training images of each class.
        views: see the attribute.
        sampler: see the attribute.

    Attributes:
        views: names of the views of each image that a batch must carry, in order, each "weak" (crop, flip) or
            "strong" (automatic augmentation on top). Fixed for the training.
        sampler: the name of the sampler that the next epoch should draw its images with; read after each
            `set_progress`, since a method with stages may change it.
        departures: what is not as the method's paper has it, a phrase each, for the report.
        stages: the shares of the training from which on its steps cost something else, 0 first; for estimates.
    """

    # Whether a step may leave parameters without a gradient, which DistributedDataParallel must know.
    skips_parameters: ClassVar[bool] = False

    views: tuple[str, ...]
    sampler: str
    departures: tuple[str, ...] = ()
    stages: tuple[float, ...] = (0.0,)

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        views: Sequence[str] = ("strong",),
        sampler: str = "instance",
    ) -> None:
        super().__init__()
        strange = [view for view in views if view not in VIEWS]
        if strange:
            raise ValueError(f"view must be 'weak' or 'strong', got {strange[0]!r}")
        self.model = model
        self.class_counts = ClassCounts(class_counts)
        self.views = tuple(views)
        self.sampler = sampler

    @abstractmethod
    def forward(self, batch: Batch) -> MethodOutput:
        """One training step up to the loss."""

    def predict(self, images: Tensor) -> Tensor:
        """Logits (B, K) of images (B, C, H, W), for inference; call `eval()` first."""
        logits: Tensor = self.model(images)
        return logits

    def check_epochs(self, epochs: int) -> None:
        """Refuse a training that is too short for the method; called once, before it."""

    def set_progress(self, progress: float) -> None:
        """Say which share of the training is done, 0 to 1: a position and no step, as resuming needs."""
        check_progress(progress)

    def schedule_position(self, progress: float) -> float:
        """Where in its learning-rate schedule the training stands, 0 to 1, when `progress` of it is done.

        A function of `progress` alone. A method of several stages starts the schedule again with each.
        """
        check_progress(progress)
        return progress

    def views_of(self, batch: Batch) -> Sequence[Tensor]:
        """The batch's views, once there are seen to be as many as the method needs."""
        if len(batch.views) != len(self.views):
            raise ValueError(
                f"batch.views must hold {len(self.views)} view(s) of each image ({', '.join(self.views)}) for "
                f"{type(self).__name__}, got {len(batch.views)} (make the data with the method's views)"
            )
        return batch.views


def check_progress(progress: float) -> None:
    """Raise unless `progress` is a share of the training."""
    if not 0 <= progress <= 1:
        raise ValueError(f"progress must be from 0 to 1, got {progress} (epoch / epochs)")


METHODS = Registry[type[Method]]("methods")
