"""What a run is: every setting by name, with its type, its range and its default.

`config.yaml` of a run is a `RunConfig` as plain dictionaries. A value of the wrong type or out of its range is refused
by name, and an unknown key with the nearest that exists.
"""

import dataclasses
import difflib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from longtail._errors import UsageError
from longtail._typing import Augment
from longtail.training.ranges import Auto, Count, Decay, Fraction, NonNegative, Positive, Share, Whole, check_ranges

Precision = Literal["auto", "32", "bf16", "fp16"]


@dataclass(frozen=True)
class ModelConfig:
    """The backbone.

    Args:
        name: the backbone: resnet32, or any of timm's; see `longtail list models`.
        pretrained: true for timm's weights, or a safetensors file.
    """

    name: str = "resnet32"
    pretrained: bool | str = False

    def __post_init__(self) -> None:
        check_ranges(self, "model.")


@dataclass(frozen=True)
class OptimConfig:
    """The optimiser and its schedule: warm-up, then half a cosine down to 0.

    Args:
        name: sgd or adamw.
        lr: the highest learning rate; the paper's is 0.05.
        momentum: of SGD; the paper does not give it.
        nesterov: whether SGD's momentum is Nesterov's.
        weight_decay: the paper does not give it. Vectors (biases, affine parameters of norms) decay too.
        warmup_epochs: epochs over which the learning rate rises from 0.
        clip_norm: the largest norm of the gradient; None for no clipping.
        accumulate: micro-batches of a batch, worked through one after another to save memory.
        ema: decay of a moving average of the weights, which is then evaluated and deployed; None for no average.
        sam: radius of SAM's ascent step (Foret et al., 2021); None for plain steps.
    """

    name: Literal["sgd", "adamw"] = "sgd"
    lr: Positive = 0.05
    momentum: Fraction = 0.9
    nesterov: bool = False
    weight_decay: NonNegative = 5e-4
    warmup_epochs: NonNegative = 0.0
    clip_norm: Positive | None = None
    accumulate: Count = 1
    ema: Decay | None = None
    sam: Positive | None = None

    def __post_init__(self) -> None:
        check_ranges(self, "optim.")


@dataclass(frozen=True)
class RunConfig:
    """All settings of a run.

    Args:
        data: a folder of class folders; one with train/, val/ and test/ of them; a CSV with path,label[,split]; or a
            name: cifar10-lt, cifar10-lt:50 (imbalance factor 50), imagenet-lt:/path, digits-lt.
        root: the folder of named data sets (default: LONGTAIL_DATA, else the user's cache folder).
        method: how to train: compound_bn (the default), erm, decoupled ...; see `longtail list methods`.
        model: the backbone.
        optim: the optimiser.
        epochs: how often each image is seen, on average.
        batch_size: images of a batch, all devices together; None for 128 of 20,000 training images or more, 64 of 2,000
            or more, else 32.
        seed: of the subset, the order, the augmentation and the first weights.
        val_fraction: share of the training images to validate on; None follows the rule of the data set.
        image_size: height and width of what the network sees; None for that of small images of one size, else the
            typical shorter side in steps of 32, at most 224.
        flip: whether training mirrors images; None does so unless a mirrored image would be of another class.
        augment: the strongest augmentation of training images, none, weak (crops and flips) or strong (AutoAugment
            too); None leaves it to the method.
        crop_scale: smallest share of the area that a random crop keeps, for images that are resized; None for 0.08.
        allow_empty: leave out classes without a training image instead of stopping.
        ignore_unknown: leave out test images of classes that training does not have, instead of stopping.
        workers: processes that make batches, or auto.
        devices: how many to use, or auto.
        precision: 32, bf16 or fp16; auto is bf16 where an accelerator has it, else 32.
        compile: compile the model.
        deterministic: refuse operations without a deterministic form.
        max_time: minutes after which the run saves and stops, to be resumed.
        eval_every: epochs between evaluations; None for a twentieth of the training.
        checkpoint_minutes: the longest time between checkpoints within an epoch.
        checkpoint_steps: steps between checkpoints within an epoch; None leaves it to the time.
        loggers: further places for the metrics, such as tensorboard; metrics.csv is always written.
    """

    data: str = "digits-lt"
    root: str | None = None
    method: Mapping[str, Any] = field(default_factory=lambda: {"name": "compound_bn"})
    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    epochs: Count = 100
    batch_size: Count | Auto = None
    seed: Whole = 0
    val_fraction: Fraction | Auto = None
    image_size: Count | Auto = None
    flip: bool | Auto = None
    augment: Augment | Auto = None
    crop_scale: Share | Auto = None
    allow_empty: bool = False
    ignore_unknown: bool = False
    workers: Whole | Auto = None
    devices: Count | Literal["auto"] = "auto"
    precision: Precision = "auto"
    compile: bool = False
    deterministic: bool = False
    max_time: NonNegative | None = None
    eval_every: Count | Auto = None
    checkpoint_minutes: NonNegative = 5.0
    checkpoint_steps: Count | None = None
    loggers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_ranges(self, "")
        if not isinstance(self.method.get("name"), str):
            raise UsageError("method must have a name", "", "set method.name, such as erm")

    def as_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists and values, as `config.yaml` has them."""
        return dataclasses.asdict(self) | {"loggers": list(self.loggers)}


_GROUPS: Mapping[str, type] = {"model": ModelConfig, "optim": OptimConfig}


def build_config(settings: Mapping[str, Any], where: str = "") -> RunConfig:
    """Make a `RunConfig` of nested dictionaries; `where` names their source in errors."""
    check_keys(settings, where)
    try:
        return RunConfig(**{k: _GROUPS[k](**value) if k in _GROUPS else value for k, value in settings.items()})
    except UsageError as error:
        raise UsageError(error.what + _in(where), error.why, error.fix) from None


def check_keys(settings: Mapping[str, Any], where: str) -> None:
    """Refuse settings that do not exist, with the nearest that does; `where` names their source."""
    _refuse_unknown(settings, [part.name for part in dataclasses.fields(RunConfig)], where, "")
    for group, kind in _GROUPS.items():
        inner = settings.get(group, {})
        if not isinstance(inner, Mapping):
            raise UsageError(f"{group} must be a group of settings, got {inner!r}{_in(where)}")
        _refuse_unknown(inner, [part.name for part in dataclasses.fields(kind)], where, f"{group}.")


def check_method_settings(method: type, settings: Mapping[str, Any], where: str) -> None:
    """Refuse arguments that `method` does not have, with the nearest that it has."""
    parameters = list(inspect.signature(method).parameters.values())[2:]  # after model and class_counts
    known = [parameter.name for parameter in parameters]
    _refuse_unknown([key for key in settings if key != "name"], known, where, "method.")


def _refuse_unknown(given: Iterable[str], known: list[str], where: str, prefix: str) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            fix = f"did you mean {prefix}{near[0]}?" if near else f"{prefix[:-1] or 'a run'} has {', '.join(known)}"
            raise UsageError(f"unknown setting {prefix}{name}{_in(where)}", "", fix)


def _in(where: str) -> str:
    return f" in {where}" if where else ""
