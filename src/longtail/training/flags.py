"""The settings with short names: flags of `longtail train` and arguments of `longtail.train`.

`TrainFlags` names them once. Their help is the docstring of `RunConfig` and its groups; what is not here goes through
`--set`, or `settings` in Python.
"""

import difflib
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Annotated, Any, Literal, TypedDict, TypeVar, get_args, get_origin, get_type_hints

from longtail._errors import UsageError
from longtail._typing import Augment
from longtail.training.run_config import Keep, ModelConfig, OptimConfig, Precision, Quality, RunConfig
from longtail.training.settings import Settings, merge, nest

F = TypeVar("F", bound=Callable[..., Any])


class TrainFlags(TypedDict, total=False):
    """Settings by their short names, each with the key that it sets if that is another; None stands for not given."""

    method: str | Mapping[str, Any] | None
    model: Annotated[str | None, "model.name"]
    time: str | float | None
    quality: Quality | None
    epochs: int | None
    patience: int | None
    keep: Keep | None
    batch_size: int | None
    lr: Annotated[float | None, "optim.lr"]
    seed: int | None
    devices: int | Literal["auto"] | None
    precision: Precision | None
    workers: int | Literal["auto"] | None
    image_size: int | None
    flip: bool | None
    augment: Augment | None
    crop_scale: float | None
    root: str | PathLike[str] | None
    head: str | Mapping[str, Any] | None
    pretrained: Annotated[bool | str | None, "model.pretrained"]
    from_scratch: Annotated[bool | None, "model.pretrained"]
    loggers: Sequence[str] | None
    max_time: float | None
    compile: bool | None
    path_column: str | None
    label_column: str | None
    allow_empty: bool | None
    ignore_unknown: bool | None


def nest_flags(flags: Mapping[str, Any]) -> Settings:
    """`{"lr": 0.1}` as `{"optim": {"lr": 0.1}}`; unknown names are refused with the nearest."""
    keys = {"data": "data"} | {name: key for name, (_, key) in _flags().items()}
    settings: Settings = {}
    for name, value in flags.items():
        if name not in keys:
            near = difflib.get_close_matches(name, keys, n=1)
            fix = f"did you mean {near[0]}?" if near else f"there are {', '.join(keys)}"
            raise UsageError(f"train has no argument {name!r}", "", fix)
        if name == "from_scratch":
            if value is None:
                continue
            value = not value
        settings = merge(settings, nest(keys[name], os.fspath(value) if isinstance(value, PathLike) else value))
    return settings


def with_flags(annotate: Callable[[str, Any], Any] = lambda _, hint: hint) -> Callable[[F], F]:
    """Show each flag of `**flags: Unpack[TrainFlags]` in a function's signature and docstring.

    Args:
        annotate: the annotation of a flag, made of its name and its type.
    """

    def decorate(function: F) -> F:
        old = inspect.signature(function)
        *first, _ = old.parameters.values()
        kind = inspect.Parameter.KEYWORD_ONLY
        flags = [
            inspect.Parameter(name, kind, default=None, annotation=annotate(name, hint))
            for name, (hint, _) in _flags().items()
        ]
        data, rest = first[:1], first[1:]
        function.__signature__ = old.replace(parameters=[*data, *flags, *rest])  # type: ignore[attr-defined] # PEP 362
        lines = "\n        ".join(
            f"{name}: {_help(name if name == 'from_scratch' else key)}" for name, (_, key) in _flags().items()
        )
        doc = re.sub(r"\bdata: .*", f"data: {_help('data')}", function.__doc__ or "")
        function.__doc__ = re.sub(r"\*\*flags: .*", lines, doc)
        return function

    return decorate


def _flags() -> dict[str, tuple[Any, str]]:
    """Type and key of each flag."""
    found = {}
    for name, hint in get_type_hints(TrainFlags, include_extras=True).items():
        found[name] = get_args(hint) if get_origin(hint) is Annotated else (hint, name)
    return found


def _help(key: str) -> str:
    """What the docstring of the settings says of one."""
    if key == "from_scratch":
        return "Start from random weights, whatever is on this machine."
    group, _, name = key.rpartition(".")
    kind = {"": RunConfig, "model": ModelConfig, "optim": OptimConfig}[group]
    found = re.search(rf"^    {name}: (.*(?:\n {{8}}.*)*)", inspect.getdoc(kind) or "", re.MULTILINE)
    text = " ".join(found[1].split()) if found else ""
    return text[:1].upper() + text[1:]
