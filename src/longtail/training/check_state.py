"""Refuse the state of a checkpoint that is well-formed and absurd, before anything of it is used.

A digest proves that nothing changed since the state was written, not that a training can be in it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

from torch import Tensor, nn

from longtail._errors import DataError, UsageError
from longtail.training.exploded import exploded
from longtail.training.progress import Progress
from longtail.training.run_config import build_config

# The parts of a state; `Progress` has its own.
_PARTS: Mapping[str, tuple[type, ...]] = {
    "classes": (list,),
    "config": (dict,),
    "progress": (dict,),
    "microbatches": (int,),
    "method": (dict,),
    "optimizer": (dict,),
    "average": (dict, type(None)),
    "precision": (dict,),
}
_COUNTS = ("epoch", "batch", "step")


def check_state(state: Mapping[str, Any], *, where: str) -> None:
    """Refuse, in one line, a state with a part missing, of another type or out of its range."""
    for name, kinds in _PARTS.items():
        if name not in state:
            raise refused(where, f"it has no {name}")
        _check(where, name, state[name], partial(_is_one_of, kinds=kinds))
    progress, config = state["progress"], state["config"]
    names = {field.name for field in fields(Progress)}
    if set(progress) != names:
        raise refused(where, f"progress must have {', '.join(sorted(names))}, got {', '.join(map(str, progress))}")
    for name in _COUNTS:
        _check(where, f"progress.{name}", progress[name], lambda value: type(value) is int and value >= 0)
    _check(where, "progress.sums", progress["sums"], _is_sums)
    _check(where, "progress.rows", progress["rows"], lambda rows: _is_list(rows, dict))
    _check(where, "progress.records", progress["records"], lambda records: _is_list(records, str))
    _check(where, "classes", state["classes"], lambda classes: _is_list(classes, str))
    _check(where, "microbatches", state["microbatches"], lambda number: number >= 1)
    _check_config(where, config)
    if progress["epoch"] > config["epochs"]:
        raise refused(where, f"progress.epoch is {progress['epoch']} of {config['epochs']}")


def check_position(progress: Progress, *, steps: int, microbatches: int, batch_size: int, where: str) -> None:
    """Refuse a position that the training cannot be in, once it is known how many steps an epoch has."""
    if progress.batch > steps:
        raise refused(where, f"progress.batch is {progress.batch} of {steps} in an epoch")
    if progress.step > (progress.epoch + 1) * steps:
        raise refused(where, f"progress.step is {progress.step} in epoch {progress.epoch + 1} of {steps} steps")
    if microbatches > max(1, batch_size):
        raise refused(where, f"microbatches is {microbatches} for {batch_size} images")


def check_weights(module: nn.Module, *, where: str) -> None:
    """Refuse weights that are not sound."""
    if (found := exploded(module)) is not None:
        raise refused(where, found)


def refused(where: str, reason: str) -> DataError:
    """The one line."""
    return DataError(f"{where} has a checkpoint that no training can have written: {reason}", code="absurd-checkpoint")


def _check_config(where: str, config: Mapping[str, Any]) -> None:
    for name in ("model", "method", "optim"):
        _check(where, f"config.{name}", config.get(name), lambda value: isinstance(value, dict))
    _check(where, "config.epochs", config.get("epochs"), lambda epochs: type(epochs) is int)
    _check(where, "config.optim.lr", config["optim"].get("lr"), lambda rate: type(rate) in (int, float))
    try:
        build_config(config, "config")
    except UsageError as error:
        raise refused(where, " ".join(error.what.split())) from error


def _check(where: str, name: str, value: Any, holds: Callable[[Any], bool]) -> None:
    if not holds(value):
        shown = f"a tensor of {tuple(value.shape)}" if isinstance(value, Tensor) else " ".join(repr(value).split())
        raise refused(where, f"{name} is {shown if len(shown) <= 80 else shown[:77] + '...'}")


def _is_one_of(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def _is_list(value: Any, kind: type) -> bool:
    return type(value) is list and all(type(part) is kind for part in value)


def _is_sums(value: Any) -> bool:
    return type(value) is dict and all(
        type(name) is str and type(number) in (int, float) and math.isfinite(number) for name, number in value.items()
    )
