"""The types and ranges of settings, stated once as annotations and checked by `check_ranges`.

`epochs: Count` is an integer >= 1; `clip_norm: Positive | None` a finite number > 0, or None.
"""

import inspect
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from longtail._errors import UsageError


class Range(NamedTuple):
    """The numbers that a setting may have: a rule in words, and its test."""

    rule: str
    holds: Callable[[float], bool]


# No run needs more of anything; a number with some zeros too many is refused before it is tried.
MOST, MOST_WORKERS, MOST_PIXELS, MOST_SEED = 1_000_000, 512, 4_096, 2**53

Count = Annotated[int, Range(f">= 1 and at most {MOST:,}", lambda x: 1 <= x <= MOST)]
Whole = Annotated[int, Range(f">= 0 and at most {MOST:,}", lambda x: 0 <= x <= MOST)]
Seed = Annotated[int, Range(">= 0 and at most 2**53", lambda x: 0 <= x <= MOST_SEED)]
Workers = Annotated[int, Range(f">= 0 and at most {MOST_WORKERS}", lambda x: 0 <= x <= MOST_WORKERS)]
Side = Annotated[int, Range(f">= 1 and at most {MOST_PIXELS:,}", lambda x: 1 <= x <= MOST_PIXELS)]
Positive = Annotated[float, Range("> 0", lambda x: x > 0)]
NonNegative = Annotated[float, Range(">= 0", lambda x: x >= 0)]
Fraction = Annotated[float, Range("in [0, 1)", lambda x: 0 <= x < 1)]
Share = Annotated[float, Range("in (0, 1]", lambda x: 0 < x <= 1)]
Decay = Annotated[float, Range("in (0, 1)", lambda x: 0 < x < 1)]
Auto = Annotated[None, "auto"]  # None: chosen for the user, who may write "auto"


def check_ranges(config: Any, prefix: str) -> None:
    """Convert each field to its type where nothing is lost; refuse it by name where something would be."""
    for name, hint in get_type_hints(type(config), include_extras=True).items():
        # Frozen for users; 1 becomes 1.0 and a list a tuple before anyone sees it.
        object.__setattr__(config, name, _convert(getattr(config, name), hint, prefix + name))


def check_arguments(function: Callable[..., Any], arguments: Mapping[str, Any], prefix: str) -> None:
    """Refuse arguments of a unit whose types are not those that it is annotated with."""
    parameters = inspect.signature(function, eval_str=True).parameters
    for name, value in arguments.items():
        hint = parameters[name].annotation if name in parameters else inspect.Parameter.empty
        if hint is not inspect.Parameter.empty:
            _convert(value, Whole if hint is int else hint, prefix + name)


def _convert(value: Any, hint: Any, path: str) -> Any:
    choices = list(_choices(hint))
    for kind, mark in choices:
        if _fits(value, kind, mark):
            return _CONVERT.get(get_origin(kind) or kind, lambda same: same)(value)
    raise UsageError(f"{path} must be {' or '.join(_describe(*choice) for choice in choices)}, got {value!r}")


_CONVERT: Mapping[Any, Callable[[Any], Any]] = {
    types.NoneType: lambda _: None,
    Literal: str,
    float: float,
    tuple: tuple,
    Mapping: dict,
}


def _choices(hint: Any) -> Iterable[tuple[Any, Any]]:
    """The members of a union, each with what `Annotated` says of it."""
    for choice in get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,):
        kind, *marks = get_args(choice) if get_origin(choice) is Annotated else (choice,)
        yield kind, marks[0] if marks else None


def _fits(value: Any, kind: Any, mark: Any) -> bool:
    origin = get_origin(kind) or kind
    if origin is types.NoneType:
        return value is None or (mark is not None and value == mark)
    if origin is Literal:
        return str(value) in get_args(kind)
    if origin in (int, float):
        number = isinstance(value, int) or (origin is float and isinstance(value, float) and math.isfinite(value))
        return number and not isinstance(value, bool) and (mark is None or mark.holds(value))
    if origin in (tuple, Sequence):
        inner = get_args(kind)[0]
        return isinstance(value, list | tuple) and all(_fits(part, inner, None) for part in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    return isinstance(value, origin) if isinstance(origin, type) else True


def _describe(kind: Any, mark: Any) -> str:
    if kind is types.NoneType:
        return repr(mark) if mark else "null"
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    words = {
        bool: "true or false",
        str: "text",
        int: "an integer",
        float: "a finite number",
        tuple: "a list",
        Sequence: "a list",
    }
    rule = f" {mark.rule}" if isinstance(mark, Range) else ""
    return words.get(get_origin(kind) or kind, "a group of settings") + rule
