"""The method contract: a small module that turns the batches of a step into a loss, in plain torch.

    output = method(*batches)       # loss, logits, parts
    output.loss.backward()

A method owns the model and its loss, so that one wrapper (DDP, compile) holds all that a step runs. It never
logs, prints, moves devices, builds optimisers or reads files: the trainer does. This is the order in which the
trainer calls it; every hook but `forward` has a default.

| Hook | When | For |
|---|---|---|
| `plan(epochs)` | once, before the training | refusing one that is too short; whole epochs for each stage |
| `check_batch(images)` | once, before the training | refusing batches; what the user should know of the classes |
| `set_progress(progress)` | start of each epoch, and after `load_state_dict` | schedules, stages |
| `start_epoch(data)` | start of each epoch, not when one is resumed | what looks at the whole training set: centroids |
| `prepare(*batches)` | once a step, with the whole batch of this rank | mixing images; keys of a momentum encoder |
| `forward(*batches)` | once for each micro-batch of what `prepare` returned | the loss |
| `after_step()` | once after each optimiser step | momentum encoders, queues, clipping of weights |
| `epoch_row()`, `diagnose(batches)` | where the trainer evaluates | metrics.csv; the report |

`forward` may run more than once a step (micro-batches, a second pass of SAM, a step that ran out of memory), so
state is changed in `prepare` and `after_step`. What these change is a buffer, and the same on every rank.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, cast

from torch import Tensor, nn

from longtail._registry import Registry
from longtail.class_counts import ClassCounts
from longtail.data import VIEWS, Batch
from longtail.data.samplers import SAMPLERS


class MethodOutput(NamedTuple):
    """The result of one forward pass.

    Attributes:
        loss: the scalar to go backward from.
        logits: (B, K), detached, of the first batch: training accuracy is counted on them.
        parts: the summands of the loss by name, detached scalars; metrics.csv has them as `train/NAME`.
    """

    loss: Tensor
    logits: Tensor
    parts: Mapping[str, Tensor]


class EpochData(Protocol):
    """The whole training set, as `start_epoch` may look at it."""

    def batches(self) -> Iterator[Batch]:
        """This rank's share of the training images in the view of the evaluation, each once, on the device."""

    def sum_over_ranks(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all ranks."""


class HeadedModel(Protocol):
    """The parts of a model that timm's and ours have."""

    def forward_features(self, x: Tensor) -> Tensor:
        """Images to features."""

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Features to logits, or to what the classifier takes."""

    def get_classifier(self) -> nn.Module:
        """The last layer."""


class Method(nn.Module, ABC):
    """The base of all methods; the tests hold its contract for every name in `METHODS`.

    - `__init__(model, class_counts, *, ...)`: keyword arguments that a YAML file can hold. Each is kept, resolved,
      in an attribute of its own name, as in scikit-learn, so that `settings()` is complete. An argument of `needs`
      is the exception: a network, or None when a trained model is only loaded.
    - `model` takes images to logits and is what is deployed: evaluated, saved, exported. A method may replace it.
    - `state_dict()` is the model's, under `model.`, plus what the method itself keeps. With it and `set_progress`
      a method that was built anew with the same arguments goes on exactly.

    Args:
        model: from images to logits; trained in place.
        class_counts: training images of each class.
        views: see the attribute.
        samplers: see the attribute.

    Attributes:
        needs: arguments that name a finished run; the trainer passes that run's network, frozen, in eval mode and on
            the device. Keep it in a list, so that it is no part of the state.
        skips_parameters: whether a step may leave parameters without a gradient, which DDP must know.
        microbatches: whether a batch may be cut into micro-batches without changing what is learnt, batch norms
            apart.
        views: names in `VIEWS` of the views of each image that a batch carries, in order. Fixed for the training.
        samplers: names in `SAMPLERS`; a step gets one batch from each, in order. Read after each `set_progress`, so
            a stage may change them. The first one sets the number of steps of an epoch.
        stages: progress values at which a stage starts, 0 first. The learning-rate schedule, warm-up included,
            starts again with each stage, and the cost of a step may change.
        lr_scale: multiplies the learning rate. Read at each step, so a stage may change it.
        departures: how the method differs from its paper, one phrase each, for the report.
        passes: what a step costs, as a multiple of one forward and backward pass of the model; an estimate that
            `longtail list methods` shows.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    skips_parameters: ClassVar[bool] = False

    microbatches: bool = True
    views: tuple[str, ...]
    samplers: tuple[str, ...]
    stages: tuple[float, ...] = (0.0,)
    lr_scale: float = 1.0
    departures: tuple[str, ...] = ()
    passes: ClassVar[float] = 1.0

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        views: Sequence[str] = ("strong",),
        samplers: Sequence[str] = ("instance",),
    ) -> None:
        super().__init__()
        for kind, names, registry in (("view", views, VIEWS), ("sampler", samplers, SAMPLERS)):
            unknown = [name for name in names if name not in registry]
            if unknown:
                raise ValueError(f"{kind} must be one of {', '.join(registry)}, got {unknown[0]!r}")
        self.model = model
        self.class_counts = ClassCounts(class_counts)
        self.views = tuple(views)
        self.samplers = tuple(samplers)

    @abstractmethod
    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of one batch from each sampler."""

    def settings(self) -> dict[str, Any]:
        """The resolved keyword arguments: a method built with them trains the same, whatever the defaults become."""
        return resolved_arguments(self, exclude=self.needs)

    def plan(self, epochs: int) -> None:
        """Hear how long the training is, once, before it; raise `ValueError` if it is too short."""

    def check_batch(self, images: int) -> Sequence[str]:
        """Hear how many images a step has, once, before the training; raise `ValueError` if they are too few or many.

        What is returned is said to the user: where the method can train on these classes, but not do all it promises.
        """
        del images
        return ()

    def set_progress(self, progress: float) -> None:
        """Move to `progress`, the share of the training that is done, 0 to 1; calling it twice changes nothing."""
        check_progress(progress)

    def start_epoch(self, data: EpochData) -> None:
        """Look at the whole training set; keep what is found in buffers, since a resumed epoch does not call this."""

    def prepare(self, *batches: Batch) -> tuple[Batch, ...]:
        """Change the batches of a step before they are cut into micro-batches; torch's generator is seeded for it."""
        return batches

    def after_step(self) -> None:
        """Follow an optimiser step."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        """What the optimiser gets; a group may have `lr_scale` and `weight_decay` of its own."""
        return [{"params": [parameter for parameter in self.parameters() if parameter.requires_grad]}]

    def epoch_row(self) -> Mapping[str, float]:
        """Further columns of metrics.csv, from the state alone."""
        return {}

    def diagnose(self, model: nn.Module, batches: Iterable[Batch]) -> dict[str, Any]:
        """Look into the deployed model on some test images; plain values, by the report's section. Changes nothing."""
        del model, batches
        return {}

    def features(self, images: Tensor) -> Tensor:
        """What the classifier of the model takes, (B, D)."""
        model = cast("HeadedModel", self.model)
        return model.forward_head(model.forward_features(images), pre_logits=True)

    def views_of(self, batch: Batch) -> Sequence[Tensor]:
        """The views of a batch, once their number is checked."""
        if len(batch.views) != len(self.views):
            raise ValueError(
                f"batch.views must hold {len(self.views)} view(s) of each image ({', '.join(self.views)}) for "
                f"{type(self).__name__}, got {len(batch.views)} (make the data with the method's views)"
            )
        return batch.views


def sum_parts(logits: Tensor, parts: Mapping[str, Tensor]) -> MethodOutput:
    """The output whose loss is the sum of its parts."""
    loss = sum(parts.values(), start=logits.new_zeros(()))
    return MethodOutput(loss, logits.detach(), {name: part.detach() for name, part in parts.items()})


def resolved_arguments(unit: object, *, exclude: Sequence[str] = ()) -> dict[str, Any]:
    """The keyword arguments of `unit`'s class, read back from its attributes; tuples become lists, as YAML has them."""
    found = {}
    for parameter in inspect.signature(type(unit)).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in exclude:
            value = getattr(unit, parameter.name)
            found[parameter.name] = list(value) if isinstance(value, tuple) else value
    return found


def check_progress(progress: float) -> None:
    """Raise unless `progress` is a share of the training."""
    if not 0 <= progress <= 1:
        raise ValueError(f"progress must be from 0 to 1, got {progress} (epoch / epochs)")


def check_headed(model: nn.Module, reason: str) -> None:
    """Refuse a model without the parts of `HeadedModel`, or without one classifier that has parameters."""
    missing = [name for name in ("forward_features", "forward_head", "get_classifier") if not hasattr(model, name)]
    if missing:
        raise ValueError(
            f"model must have {' and '.join(missing)} {reason}, got {type(model).__name__} "
            "(timm's models and those of longtail.models do)"
        )
    classifier = cast("HeadedModel", model).get_classifier()
    if not isinstance(classifier, nn.Module) or not list(classifier.parameters()):
        raise ValueError(
            f"model must have one classifier with parameters {reason}, got {classifier} "
            f"from {type(model).__name__}.get_classifier()"
        )


METHODS = Registry[type[Method]]("methods")
