import dataclasses
import math
from typing import Any, get_type_hints

import pytest

from longtail._errors import UsageError
from longtail.methods import ERM
from longtail.training import ModelConfig, OptimConfig, RunConfig, build_config
from longtail.training.optimizer import learning_rate
from longtail.training.run_config import check_method_settings

# The rule of each number, as its error words it.
RULES = {
    "epochs": "an integer >= 0 and at most 1,000,000 or 'auto'",
    "batch_size": "an integer >= 1 and at most 1,000,000 or 'auto'",
    "seed": "an integer >= 0 and at most 2**53",
    "patience": "an integer >= 1 and at most 1,000,000 or null",
    "val_fraction": "a finite number in [0, 1) or 'auto'",
    "image_size": "an integer >= 1 and at most 4,096 or 'auto'",
    "crop_scale": "a finite number in (0, 1] or 'auto'",
    "workers": "an integer >= 0 and at most 512 or 'auto'",
    "devices": "an integer >= 1 and at most 1,000,000 or 'auto'",
    "max_time": "a finite number >= 0 or null",
    "eval_every": "an integer >= 1 and at most 1,000,000 or 'auto'",
    "checkpoint_minutes": "a finite number >= 0",
    "checkpoint_steps": "an integer >= 1 and at most 1,000,000 or null",
    "optim.lr": "a finite number > 0",
    "optim.momentum": "a finite number in [0, 1)",
    "optim.weight_decay": "a finite number >= 0",
    "optim.warmup_epochs": "a finite number >= 0",
    "optim.clip_norm": "a finite number > 0 or null",
    "optim.accumulate": "an integer >= 1 and at most 1,000,000",
    "optim.ema": "a finite number in (0, 1) or null",
    "optim.sam": "a finite number > 0 or null",
}


def group(key: str, value: object) -> dict[str, Any]:
    first, _, rest = key.partition(".")
    return {first: {rest: value} if rest else value}


def test_settings_round_trip() -> None:
    config = build_config({"optim": {"lr": 1, "ema": 0.9}, "loggers": ["tensorboard"], "devices": 2, "precision": 32})
    assert config.optim.lr == 1.0
    assert config.precision == "32"
    assert config.loggers == ("tensorboard",)
    assert build_config(config.as_dict()) == config


def test_the_rules_cover_every_number() -> None:
    numbers = set()
    for prefix, kind in {"": RunConfig, "model.": ModelConfig, "optim.": OptimConfig}.items():
        hints = {name: str(hint) for name, hint in get_type_hints(kind).items()}
        numbers |= {prefix + name for name, hint in hints.items() if "int" in hint or "float" in hint}
    assert numbers - {"time"} == RULES.keys()  # a duration, with words of its own


@pytest.mark.parametrize("value", [math.nan, math.inf, -1, -0.5, "many", True, [1]])
@pytest.mark.parametrize("key", RULES)
def test_a_number_of_the_wrong_type_or_range_is_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(UsageError) as caught:
        build_config(group(key, value), "a.yaml")
    assert str(caught.value) == f"{key} must be {RULES[key]}, got {value!r} in a.yaml"


@pytest.mark.parametrize(
    ("key", "value"),
    [(key, 0) for key, rule in RULES.items() if ">= 1" in rule or "> 0" in rule]
    + [("optim.ema", 0), ("optim.ema", 1), ("optim.momentum", 1), ("val_fraction", 1), ("epochs", 1.5)]
    + [("crop_scale", 0), ("crop_scale", 1.01)],
)
def test_the_ends_of_a_range_are_refused_where_they_are_open(key: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"{key} must be"):
        build_config(group(key, value))


@pytest.mark.parametrize("key", [key for key, rule in RULES.items() if ">= 0" in rule or "[0" in rule])
def test_zero_is_accepted_where_it_means_something(key: str) -> None:
    assert build_config(group(key, 0) | {"head": {"name": "linear"}}) is not None


@pytest.mark.parametrize("key", [key for key, rule in RULES.items() if "null" in rule])
def test_null_turns_a_part_off(key: str) -> None:
    assert build_config(group(key, None)) == RunConfig()


@pytest.mark.parametrize(
    "key",
    ["batch_size", "val_fraction", "image_size", "flip", "augment", "crop_scale", "workers", "eval_every"],
)
def test_auto_is_none(key: str) -> None:
    assert build_config({key: "auto"}) == build_config({key: None}) == RunConfig()


def test_a_crop_may_keep_the_whole_image() -> None:
    assert build_config({"crop_scale": 1}).crop_scale == 1.0


def test_settings_made_in_python_are_checked_too() -> None:
    with pytest.raises(UsageError, match=r"optim\.lr must be a finite number > 0, got nan"):
        OptimConfig(lr=math.nan)
    with pytest.raises(UsageError, match="epochs must be at least 1 without a head, got 0"):
        dataclasses.replace(RunConfig(), epochs=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epoch": 3}, "unknown setting epoch in a.yaml\ndid you mean epochs?"),
        ({"optim": {"lrr": 0.9}}, "unknown setting optim.lrr in a.yaml\ndid you mean optim.lr?"),
        ({"model": {"depth": 3}}, "unknown setting model.depth in a.yaml\nmodel has name, pretrained"),
        ({"optim": 3}, "optim must be a group of settings, got 3 in a.yaml"),
        ({"optim": {"name": "adam"}}, "optim.name must be 'sgd' or 'adamw', got 'adam' in a.yaml"),
        ({"compile": 1}, "compile must be true or false, got 1 in a.yaml"),
        ({"data": 3}, "data must be text, got 3 in a.yaml"),
        ({"flip": "left"}, "flip must be true or false or 'auto', got 'left' in a.yaml"),
        ({"augment": "weaker"}, "augment must be 'none' or 'weak' or 'strong' or 'auto', got 'weaker' in a.yaml"),
        ({"loggers": "tensorboard"}, "loggers must be a list, got 'tensorboard' in a.yaml"),
        ({"model": {"pretrained": 3}}, "model.pretrained must be 'auto' or true or false or text, got 3 in a.yaml"),
        ({"method": 3}, "method must be a group of settings, got 3 in a.yaml"),
        ({"method": {}}, "method must have a name in a.yaml"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        build_config(settings, "a.yaml")
    assert message in str(caught.value)


def test_an_argument_that_a_method_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match=r"unknown setting method\.los in a.yaml\ndid you mean method\.loss"):
        check_method_settings(ERM, {"name": "erm", "los": "focal"}, "a.yaml")


def test_the_schedule_is_torchs_warm_up_and_cosine() -> None:
    import torch
    from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

    config = OptimConfig(lr=0.3, warmup_epochs=5)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    warmup = LinearLR(optimizer, start_factor=1e-9, total_iters=5)
    theirs = SequentialLR(optimizer, [warmup, CosineAnnealingLR(optimizer, 15)], milestones=[5])
    for epoch in range(20):
        assert learning_rate(config, progress=epoch / 20, epochs=20) == pytest.approx(theirs.get_last_lr()[0], abs=1e-6)
        optimizer.step()
        theirs.step()
