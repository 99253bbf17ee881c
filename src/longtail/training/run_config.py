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
from longtail.training.duration import parse_duration
from longtail.training.ranges import (
    Auto,
    Count,
    Decay,
    Fraction,
    NonNegative,
    Positive,
    Seed,
    Share,
    Side,
    Whole,
    Workers,
    check_arguments,
    check_ranges,
)

Precision = Literal["auto", "32", "bf16", "fp16"]
Quality = Literal["fast", "good", "best"]
Keep = Literal["last", "best"]


@dataclass(frozen=True)
class ModelConfig:
    """The backbone.

    Args:
        name: the backbone: resnet32, or any of timm's; see `longtail list models`. Auto is EfficientNet-Lite0 with its
            ImageNet weights, or from scratch a network for the size of the images.
        pretrained: a file of weights, or true for timm's, downloaded if need be. Auto takes what is on this machine.
        features: last for the network as it is; stages for a classifier on the features of all its stages; grid for one
            that sees in which part of the image they are. Auto is the better of the two in cross-validation.
    """

    name: Auto | str = None
    pretrained: Auto | bool | str = None
    features: Auto | Literal["last", "stages", "grid"] = "last"

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
        sam_classes: all, or tail for an ascent on images of rare classes alone (ImbSAM, Zhou et al., 2023): those of
            100 training images or fewer.
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
    sam_classes: Literal["all", "tail"] = "all"

    def __post_init__(self) -> None:
        check_ranges(self, "optim.")
        if self.sam_classes != "all" and self.sam is None:
            raise UsageError(
                f"optim.sam_classes must be all without optim.sam, got {self.sam_classes}",
                "it says whose ascent step SAM takes",
                "give a radius too, such as --set optim.sam=0.05",
            )


@dataclass(frozen=True)
class RunConfig:
    """All settings of a run.

    Args:
        data: a folder of class folders; one with train/, val/ and test/ of them; a CSV with path,label[,split]; or a
            name: cifar10-lt, cifar10-lt:50 (imbalance factor 50), imagenet-lt:/path, digits-lt.
        root: the folder of named data sets (default: LONGTAIL_DATA, else the user's cache folder).
        method: how to train: fine_tune (the default with pretrained weights), erm (from scratch), compound_bn ...; see
            `longtail list methods`.
        model: the backbone.
        head: the classifier to fit on the features of the frozen backbone before anything else, such as
            {name: linear}; None for none. See `longtail list heads`.
        mirror_features: whether the head also learns from mirrored images, where it is not fine-tuned. Auto does if
            images may be mirrored and the time allows.
        optim: the optimiser.
        mixing: mixes the images of a step with each other, for any method of one stage: {name: mixup}, or cutmix,
            remix, unimix or cmo, with the share of the steps that are mixed, probability, and its own arguments, such
            as alpha. None for plain images; erm has method.mixing instead.
        time: how long the whole run may take, such as 90s, 10m or 1h; size, head and epochs are planned for it.
            Auto follows quality.
        quality: fast (1 minute), good (3 minutes) or best (15 minutes), where time is not given.
        epochs: how often each image is seen, on average; 0 keeps the fitted head. Auto is what the time allows.
        batch_size: images of a batch, all devices together; auto is 128 of 20,000 training images or more, 64 of 2,000
            or more, else 32.
        seed: of the subset, the order, the augmentation and the first weights.
        patience: epochs without a better balanced accuracy on validation after which the training ends; None for all
            epochs.
        keep: whose weights the run keeps: those of the last epoch, or of the best on validation by balanced accuracy.
            Auto is last, or best with patience.
        val_fraction: share of the training images to validate on; None follows the rule of the data set.
        image_size: height and width of what the network sees; auto follows from the images and the time.
        flip: whether to mirror images at random in training. Auto follows from the data.
        augment: none, weak (crops and mirroring) or strong (AutoAugment as well); auto is what the method asks for.
        crop_scale: the smallest share of its area that a random crop keeps, for images that are resized.
        path_column: of a CSV, the column of image files. Auto finds path, filename, image and the like.
        label_column: of a CSV, the column of classes. Auto finds label, class, ClassId, category and the like.
        allow_empty: leave out classes without a training image instead of stopping.
        ignore_unknown: leave out test images of classes that training does not have, instead of stopping.
        workers: processes that make batches, or auto.
        devices: how many to use, or auto.
        precision: 32, bf16 or fp16; auto is bf16 where an accelerator has it, else 32.
        compile: compile the model.
        deterministic: refuse operations without a deterministic form.
        max_time: minutes after which the training saves and ends; the run is then evaluated, and can be resumed.
        eval_every: epochs between evaluations; None for a twentieth of the training.
        checkpoint_minutes: the longest time between checkpoints within an epoch.
        checkpoint_steps: steps between checkpoints within an epoch; None leaves it to the time.
        loggers: further places for the metrics, such as tensorboard; metrics.csv is always written.
    """

    data: str = "digits-lt"
    root: str | None = None
    method: Mapping[str, Any] = field(default_factory=lambda: {"name": "erm"})
    model: ModelConfig = field(default_factory=ModelConfig)
    head: Mapping[str, Any] | None = None
    mirror_features: Auto | bool = None
    optim: OptimConfig = field(default_factory=OptimConfig)
    mixing: Mapping[str, Any] | None = None
    time: Positive | Auto = None
    quality: Quality = "good"
    epochs: Whole | Auto = None
    batch_size: Count | Auto = None
    seed: Seed = 0
    patience: Count | None = None
    keep: Keep | Auto = None
    val_fraction: Fraction | Auto = None
    image_size: Side | Auto = None
    flip: bool | Auto = None
    augment: Augment | Auto = None
    crop_scale: Share | Auto = None
    path_column: Auto | str = None
    label_column: Auto | str = None
    allow_empty: bool = False
    ignore_unknown: bool = False
    workers: Workers | Auto = None
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
        object.__setattr__(self, "time", parse_duration(self.time, "time"))
        check_ranges(self, "")
        if self.epochs == 0 and self.head is None:
            raise UsageError("epochs must be at least 1 without a head, got 0", "nothing would be trained")
        if not isinstance(self.method.get("name"), str):
            raise UsageError("method must have a name", "", "set method.name, such as erm")
        if self.head is not None and not isinstance(self.head.get("name"), str):
            raise UsageError("head must have a name", "", "set head.name, such as linear")

    @property
    def planned_epochs(self) -> int:
        """The epochs, once they are settled."""
        if self.epochs is None:
            raise ValueError("epochs must be settled before the training is built")
        return self.epochs

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
    for group in ("method", "head"):
        value = settings.get(group)
        odd = [key for key in value if not isinstance(key, str)] if isinstance(value, Mapping) else []
        if odd:
            raise UsageError(f"settings of {group} must have names, got {odd[0]!r}{_in(where)}")
    for group, kind in _GROUPS.items():
        inner = settings.get(group, {})
        if not isinstance(inner, Mapping):
            raise UsageError(f"{group} must be a group of settings, got {inner!r}{_in(where)}")
        _refuse_unknown(inner, [part.name for part in dataclasses.fields(kind)], where, f"{group}.")


def check_method_settings(method: type, settings: Mapping[str, Any], where: str) -> None:
    """Refuse arguments that `method` does not have, with the nearest that it has."""
    parameters = list(inspect.signature(method).parameters.values())[2:]  # after model and class_counts
    known = [parameter.name for parameter in parameters]
    given = {key: value for key, value in settings.items() if key != "name"}
    _refuse_unknown(given, known, where, "method.")
    # What it needs of other runs is named by their folders, and becomes networks.
    needs = getattr(method, "needs", ())
    check_arguments(method, {key: value for key, value in given.items() if key not in needs}, "method.")


def check_head_settings(heads: Mapping[str, Any], settings: Mapping[str, Any] | None) -> None:
    """Refuse a head that does not exist, and arguments that it does not have or that are of another type."""
    if settings is None:
        return
    name = settings["name"]
    if name not in heads:
        near = difflib.get_close_matches(name, heads, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise UsageError(f"unknown head {name!r}{hint}", "", "`longtail list heads` shows all")
    given = {key: value for key, value in settings.items() if key != "name"}
    known = list(inspect.signature(heads[name]).parameters)[1:]  # after class_counts
    _refuse_unknown(given, known, "", "head.")
    check_arguments(heads[name], given, "head.")
    try:
        heads[name]([2, 1], **given)
    except (ValueError, TypeError) as error:
        raise UsageError(f"head.{error}") from error


def _refuse_unknown(given: Iterable[str], known: list[str], where: str, prefix: str) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            fix = f"did you mean {prefix}{near[0]}?" if near else f"{prefix[:-1] or 'a run'} has {', '.join(known)}"
            raise UsageError(f"unknown setting {prefix}{name}{_in(where)}", "", fix)


def _in(where: str) -> str:
    return f" in {where}" if where else ""
