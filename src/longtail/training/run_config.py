"""What a run is: every setting by name, with its default, from and to plain dictionaries.

`config.yaml` of a run is this, resolved; it repeats the run. A key that does not exist is refused with the
nearest that does.
"""

import dataclasses
import difflib
import inspect
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from longtail._errors import UsageError

T = TypeVar("T")
Precision = Literal["auto", "32", "bf16", "fp16"]


@dataclass(frozen=True)
class ModelConfig:
    """The backbone.

    Args:
        name: of `longtail list models`.
        pretrained: True for timm's weights, or a safetensors file.
    """

    name: str = "resnet32"
    pretrained: bool | str = False


@dataclass(frozen=True)
class OptimConfig:
    """The optimiser and its schedule: warm-up, then half a cosine down to 0.

    Args:
        name: "sgd" or "adamw".
        lr: the highest learning rate; the paper's is 0.05.
        momentum: of SGD; the paper does not give it.
        nesterov: whether SGD's momentum is Nesterov's.
        weight_decay: the paper does not give it. Vectors (biases, affine parameters of norms) decay too.
        warmup_epochs: over which the learning rate rises from 0.
        clip_norm: the largest norm of the gradient; None does not clip.
        accumulate: parts a batch is worked through in, one after another, to save memory.
        sam: radius of SAM's ascent step; None for plain steps.
        ema: decay of an exponential moving average of the weights, which is then what is evaluated; None for none.
    """

    name: Literal["sgd", "adamw"] = "sgd"
    lr: float = 0.05
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    warmup_epochs: float = 0.0
    clip_norm: float | None = None
    accumulate: int = 1
    ema: float | None = None
    sam: float | None = None


@dataclass(frozen=True)
class RunConfig:
    """All settings of a run.

    Args:
        data: what to train on; see `longtail.data.open_dataset`.
        root: where named data sets lie.
        method: `name`, and that method's own arguments.
        model: the backbone.
        optim: the optimiser.
        epochs: how often each image is seen, in the mean.
        batch_size: the images of a batch, all devices together.
        seed: of the data's subset, the order, the augmentation and the first weights.
        val_fraction: the part of the training images to validate on; None is the data's own rule.
        image_size: of what the network sees, for images that are resized.
        allow_empty: leave classes without images out.
        ignore_unknown: leave out test images of unknown classes.
        workers: processes that make batches; None chooses.
        devices: how many, or "auto".
        precision: "32", "bf16", "fp16", or "auto": bf16 where an accelerator has it, else 32.
        compile: whether the model is compiled.
        deterministic: whether operations without a deterministic form are refused.
        max_time: minutes after which the run saves and stops, to be resumed.
        eval_every: epochs between evaluations; None is a twentieth of the training.
        checkpoint_minutes: the longest time between checkpoints within an epoch.
        checkpoint_steps: steps between checkpoints within an epoch; None leaves it to the time.
        loggers: further places for the metrics, such as "tensorboard"; metrics.csv is always written.
    """

    data: str = "digits-lt"
    root: str | None = None
    method: Mapping[str, Any] = field(default_factory=lambda: {"name": "compound_bn"})
    model: ModelConfig = ModelConfig()
    optim: OptimConfig = OptimConfig()
    epochs: int = 100
    batch_size: int = 128
    seed: int = 0
    val_fraction: float | None = None
    image_size: int | None = None
    allow_empty: bool = False
    ignore_unknown: bool = False
    workers: int | None = None
    devices: int | Literal["auto"] = "auto"
    precision: Precision = "auto"
    compile: bool = False
    deterministic: bool = False
    max_time: float | None = None
    eval_every: int | None = None
    checkpoint_minutes: float = 5.0
    checkpoint_steps: int | None = None
    loggers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            _at_least_one(name, getattr(self, name))
        for name in ("eval_every", "checkpoint_steps"):
            if getattr(self, name) is not None:
                _at_least_one(name, getattr(self, name))
        _at_least_one("optim.accumulate", self.optim.accumulate)
        if self.optim.lr <= 0:
            raise UsageError(f"optim.lr must be positive, got {self.optim.lr}")
        if "name" not in self.method:
            raise UsageError("method must have a name", "", "set method.name, such as compound_bn")

    def as_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists and values, as `config.yaml` has them."""
        plain = dataclasses.asdict(self)
        plain["method"] = dict(self.method)
        plain["loggers"] = list(self.loggers)
        return plain


# What may differ when a run is resumed: it decides where and how fast, not what comes out.
FREE_ON_RESUME = frozenset(
    {"root", "workers", "devices", "max_time", "eval_every", "checkpoint_minutes", "checkpoint_steps", "loggers"}
)


def build_config(settings: Mapping[str, Any], where: str = "the settings") -> RunConfig:
    """Make a `RunConfig` of nested dictionaries; `where` names their source in errors."""
    return _build(RunConfig, settings, where, "")


def check_method_settings(method: type, settings: Mapping[str, Any], where: str) -> None:
    """Refuse arguments that `method` does not have, with the nearest that it has."""
    parameters = list(inspect.signature(method).parameters.values())[2:]  # after model and class_counts
    known = [parameter.name for parameter in parameters]
    _refuse_unknown([key for key in settings if key != "name"], known, where, "method.")


def _build(kind: type[T], settings: Mapping[str, Any], where: str, prefix: str) -> T:
    hints = get_type_hints(kind)
    _refuse_unknown(list(settings), list(hints), where, prefix)
    values: dict[str, Any] = {}
    for name, value in settings.items():
        hint, path = hints[name], f"{prefix}{name}"
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            if not isinstance(value, Mapping):
                raise UsageError(f"{path} must be a group of settings, got {value!r} in {where}")
            values[name] = _build(hint, value, where, f"{path}.")
        else:
            values[name] = _convert(value, hint, path, where)
    return kind(**values)


def _refuse_unknown(given: list[str], known: list[str], where: str, prefix: str) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {prefix}{near[0]}?" if near else f"it may have {', '.join(known)}"
            raise UsageError(f"{where} has the key {prefix}{name}, which does not exist", "", hint)


def _convert(value: Any, hint: Any, path: str, where: str) -> Any:
    """`value` as the type that `hint` asks for, if nothing is lost; else an error that names the key."""
    for choice in get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,):
        origin = get_origin(choice)
        if choice is types.NoneType and value is None:
            return None
        if origin is Literal and (value in get_args(choice) or str(value) in get_args(choice)):
            return value if value in get_args(choice) else str(value)
        if choice is bool and isinstance(value, bool):
            return value
        if choice is int and isinstance(value, int) and not isinstance(value, bool):
            return value
        if choice is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if choice is str and isinstance(value, str):
            return value
        if origin is tuple and isinstance(value, list | tuple):
            return tuple(str(part) for part in value)
        if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, Mapping):
            return dict(value)
    shown = getattr(hint, "__name__", None) if isinstance(hint, type) else str(hint).replace("typing.", "")
    raise UsageError(f"{path} must be {shown}, got {value!r} in {where}")


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise UsageError(f"{name} must be at least 1, got {value}")
