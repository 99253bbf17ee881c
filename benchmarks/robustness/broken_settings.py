"""Settings with values of the wrong type, range or spelling, by `--set`, flags, the environment and YAML."""

import dataclasses
import inspect
import random
from pathlib import Path

from longtail.heads import HEADS
from longtail.methods import METHODS
from longtail.training import OptimConfig, RunConfig
from longtail.training.run_config import ModelConfig

VALUES = (
    *(
        "",
        "null",
        "auto",
        "true",
        "no",
        "0",
        "-1",
        "1",
        "2",
        "7",
        "0.5",
        "1.5",
        "-0.0",
        "1e400",
        ".inf",
        ".nan",
        "-.inf",
    ),
    *("1e-300", "1e30", "999999999999999999999999", "9223372036854775808", "1000000000", "1000000", "50000", "0x10"),
    *("1_000", "12:30:45", "2024-01-01", "~", "x", "'x'", "[]", "[1, 2]", "[a, [b]]", "{}", "{a: 1}", "{name: x}"),
    *(
        "{name: [1]}",
        "{1: 2}",
        "!!python/object:os.system x",
        "&a [*a]",
        "!!binary aGk=",
        "!!set {a}",
        "*",
        "?",
        "- - -",
    ),
    *(
        "{",
        "[",
        "'",
        '"',
        "a: b: c",
        "\x1b[31mred",
        "a\rb",
        "a\nb",
        "\t",
        "é" * 300,
        "/dev/null",
        "/dev/full",
        ".",
        "..",
    ),
    *(
        "/etc/passwd",
        "%s",
        "erm",
        "compound_bn",
        "ldam",
        "linear",
        "strong",
        "weak",
        "none",
        "test",
        "10m",
        "-5m",
        "1h5",
    ),
    *(
        "resnet8",
        "resnet9",
        "timm/resnet18",
        "timm/",
        "vit_tiny_patch16_224",
        "test_vit",
        "cifar10-lt:0",
        "digits-lt:-5",
    ),
    *("digits-lt:1e9", "digits-lt:nan", "digits-lt:x", "imagenet-lt:/dev", "a\x00b", "~/x", "~nobody/x", "[" * 500),
)
_FLAGS = (
    *("--method", "--model", "--time", "--quality", "--epochs", "--batch-size", "--lr", "--seed", "--devices"),
    *("--precision", "--workers", "--image-size", "--augment", "--crop-scale", "--root", "--head", "--pretrained"),
    *("--loggers", "--max-time", "--config", "--out", "--resume", "--budget"),
)


def setting_keys() -> list[str]:
    """Every key that `--set` takes: of runs, models, optimisers, heads and methods."""
    keys = [part.name for part in dataclasses.fields(RunConfig)]
    for group, kind in (("model", ModelConfig), ("optim", OptimConfig)):
        keys += [f"{group}.{part.name}" for part in dataclasses.fields(kind)]
    return [*keys, "method.name", "head.name"]


def method_keys(name: str) -> list[str]:
    """The arguments of a method."""
    return [f"method.{key}" for key in list(inspect.signature(METHODS[name]).parameters)[2:]]


def head_keys(name: str) -> list[str]:
    """The arguments of a head."""
    return [f"head.{key}" for key in list(inspect.signature(HEADS[name]).parameters)[1:]]


def break_settings(draw: random.Random, place: Path) -> tuple[list[str], dict[str, str]]:
    """Words of a command line and variables of the environment."""
    method = draw.choice(sorted(METHODS))
    keys = [*setting_keys(), *method_keys(method) * 3]
    words, variables = [], {}
    if draw.random() < 0.8:
        words += ["--method", method]
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        key, value = draw.choice(keys), draw.choice(VALUES)
        way = draw.random()
        if way < 0.5:
            words += ["--set", f"{key}={value}"]
        elif way < 0.7:
            words += [draw.choice(_FLAGS), value]
        elif way < 0.85 and "\0" not in value:
            variables["LONGTAIL_" + key.upper().replace(".", "__")] = value
        else:
            file = place / "settings.yaml"
            group, dot, name = key.partition(".")
            line = f"{group}:\n  {name}: {value}" if dot else f"{key}: {value}"
            file.write_text(draw.choice(["", "\ufeff", "%YAML 1.2\n---\n", "x: &x\n"]) + line, "utf-8")
            words += ["--config", str(file)]
    return words, variables
