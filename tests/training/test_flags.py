import inspect
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Unpack, get_args, get_origin, get_type_hints

import pytest

from longtail._errors import UsageError
from longtail.training import ModelConfig, OptimConfig, RunConfig, TrainFlags
from longtail.training.flags import nest_flags, with_flags

SETTINGS = {
    prefix + name: hint
    for prefix, kind in {"": RunConfig, "model.": ModelConfig, "optim.": OptimConfig}.items()
    for name, hint in get_type_hints(kind).items()
}


def members(hint: Any) -> set[Any]:
    return set(get_args(hint | None)) - {NoneType}


@with_flags()
def command(data: str, *, out: str, **flags: Unpack[TrainFlags]) -> None:
    """Do it.

    Args:
        data: see there.
        **flags: see there.
        out: a folder.
    """


def test_each_flag_has_the_type_of_its_setting() -> None:
    for name, hint in get_type_hints(TrainFlags, include_extras=True).items():
        kind, key = get_args(hint) if get_origin(hint) is Annotated else (hint, name)
        if name not in (
            "method",
            "head",
            "time",
            "from_scratch",
            "root",
            "loggers",
        ):  # in Python also a name, a path, any sequence
            assert members(SETTINGS[key]) <= members(kind), name


def test_flags_are_nested_by_their_keys() -> None:
    flags = {"data": Path("birds"), "method": "erm", "model": "resnet8", "pretrained": True, "lr": 0.1, "epochs": None}
    assert nest_flags(flags) == {
        "data": "birds",
        "method": {"name": "erm"},
        "model": {"name": "resnet8", "pretrained": True},
        "optim": {"lr": 0.1},
        "epochs": None,
    }


def test_an_unknown_flag_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"train has no argument 'epoch'\ndid you mean epochs\?"):
        nest_flags({"epoch": 3})


def test_signature_and_docstring_name_every_flag_with_the_help_of_its_setting() -> None:
    names = list(TrainFlags.__annotations__)
    assert list(inspect.signature(command).parameters) == ["data", *names, "out"]
    assert all(inspect.signature(command).parameters[name].default is None for name in names)
    described = [line.strip().partition(": ") for line in (inspect.getdoc(command) or "").splitlines() if ": " in line]
    assert [name for name, _, _ in described] == ["data", *names, "out"]
    assert all(text for _, _, text in described)
    assert {name: text for name, _, text in described}["lr"] == "The highest learning rate; the paper's is 0.05."
