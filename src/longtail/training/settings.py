"""Put the settings of a run together: flags over the environment over a config file over the recipe.

`resolve_settings` serves `longtail train` and `longtail.train`. A run that is resumed takes the settings of its
`config.yaml` instead, of which a few may change.
"""

import difflib
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from longtail._errors import DataError, UsageError
from longtail.training.recipes import default_method, find_recipe
from longtail.training.run_config import RunConfig, build_config, check_keys

Settings = dict[str, Any]

# Environment variables with our prefix that are not settings.
_OTHER_VARIABLES = {"LONGTAIL_CACHE", "LONGTAIL_DATA", "LONGTAIL_KERNELS"}

# What the parser raises for texts that are no YAML; for one nested too deep, Python's own error.
_NO_YAML = (yaml.YAMLError, ValueError, OverflowError, RecursionError, TypeError, LookupError, AttributeError)

# Of a file or a value of settings.
_MOST_VALUES = 10_000

# What a resumed run may change: where and how fast it runs, and whose weights it keeps; the learning rate, with which a
# run that diverged goes on from its last sound checkpoint; and the epochs, see `extend_run`.
FREE_ON_RESUME = frozenset(
    {
        *("root", "workers", "devices", "max_time", "eval_every", "checkpoint_minutes", "checkpoint_steps", "loggers"),
        *("keep", "patience"),
        *("epochs", "optim.lr"),
    }
)


def resolve_settings(
    flags: Mapping[str, Any],
    *,
    out: Path | None = None,
    resume: str | None = None,
    config: Path | None = None,
    overrides: Iterable[str] = (),
    budget: str = "paper",
) -> tuple[RunConfig, Path | None, bool]:
    """The settings of a run, its folder, and whether to look for a checkpoint there.

    Args:
        flags: nested settings, see `flags.nest_flags`; None stands for not given.
        out: the run's folder.
        resume: the folder of a run to resume; "auto" for `out`, if there is a run.
        config: a YAML file of settings.
        overrides: `key=value` texts.
        budget: "paper", or "quick" for a twentieth of the recipe's epochs.
    """
    if resume is not None and resume != "auto":
        for name, value in (("out", out), ("config", config)):
            if value is not None:
                raise UsageError(
                    f"--{name} {value} cannot go with --resume {resume}",
                    "a resumed run keeps its folder and its settings",
                    f"leave out --{name}, or use --resume auto --out {resume}",
                )
        return _resume(Path(resume), _override(flags, overrides)), Path(resume), True
    if resume == "auto" and out is None:
        raise UsageError("--resume auto needs --out", "it resumes the run in that folder", "--out runs/NAME")
    if flags.get("data") is None and config is None:
        raise UsageError(
            "DATA is missing", "", "name a folder of class folders, a CSV, or a data set such as digits-lt"
        )
    settings = layer_settings(flags, config=config, overrides=overrides, budget=budget)
    return build_config(settings), out, resume == "auto"


def layer_settings(
    flags: Mapping[str, Any],
    *,
    config: Path | None = None,
    overrides: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
    budget: str = "paper",
) -> Settings:
    """Put the layers on top of each other; what none of them sets is left to `RunConfig`.

    Args:
        flags: nested settings; None stands for not given.
        config: a YAML file of settings.
        overrides: `key=value` texts with dots in the key, as `--set` takes them.
        environment: variables; those of the process if None.
        budget: see `find_recipe`.
    """
    layers = {
        str(config): _read_yaml(config) if config else {},
        "the environment": read_environment(os.environ if environment is None else environment),
        "": _override(flags, overrides),
    }
    above: Settings = {}
    for where, layer in layers.items():
        check_keys(layer, where)
        above = merge(above, layer)
    data, model = str(above.get("data", RunConfig().data)), above.get("model", {})
    method = _as_method(above.get("method")).get("name") or default_method(data, model.get("pretrained"))
    recipe = find_recipe(data, str(method), budget)
    if "name" in (named := _as_method(above.get("method"))) and "name" in recipe.get("method", {}):
        above = above | {"method": named | {"name": recipe["method"]["name"]}}  # a preset names another method
    if method != "fine_tune" and "pretrained" not in model:
        recipe = merge({"model": {"pretrained": False}}, recipe)  # every other method starts from scratch
    if "time" in above or "quality" in above:
        recipe.pop("epochs", None)  # planned for that time
    return merge(merge({"method": {"name": method}}, recipe), above)


def parse_override(text: str) -> Settings:
    """`optim.lr=0.1` as nested settings; the value is YAML."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set must be key=value, got {text!r}", "", "such as --set optim.momentum=0.9")
    return nest(key.strip(), parse_value(value, text))


def read_environment(variables: Mapping[str, str]) -> Settings:
    """`LONGTAIL_EPOCHS=10` and `LONGTAIL_OPTIM__LR=0.1` as nested settings."""
    settings: Settings = {}
    for name, value in sorted(variables.items()):
        if name.startswith("LONGTAIL_") and name not in _OTHER_VARIABLES:
            key = name.removeprefix("LONGTAIL_").lower().replace("__", ".")
            settings = merge(settings, nest(key, parse_value(value, name)))
    return settings


def parse_value(text: str, where: str) -> Any:
    """A value in YAML, with 5e-4 read as a number."""
    try:
        value = _few(yaml.safe_load(text))
    except _NO_YAML as error:
        raise UsageError(f"the value of {where} must be YAML, got {_short(text)!r}") from error
    try:
        return float(value) if isinstance(value, str) else value  # YAML reads 5e-4 as text
    except ValueError:
        return value


def nest(key: str, value: Any) -> Settings:
    """`optim.lr` and 0.1 as `{"optim": {"lr": 0.1}}`."""
    first, dot, rest = key.partition(".")
    return {first: nest(rest, value) if dot else value}


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> Settings:
    """`above` over `below`, group by group.

    A method or head of another name replaces the one below with its arguments, and any other choice, such as `loss`,
    drops the `loss_settings` of the one below.
    """
    changed = {f"{name}_settings" for name, value in above.items() if name in below and below[name] != value}
    result = {name: value for name, value in below.items() if name not in changed}
    for name, value in above.items():
        old = result.get(name)
        if name in ("method", "head") and value is not None:
            value, old = _as_method(value), _as_method(old)
            if old and value.get("name", old.get("name")) != old.get("name"):
                old = {}
        result[name] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def without_none(settings: Mapping[str, Any]) -> Settings:
    """Leave out what was not given."""
    cleaned = {k: without_none(v) if isinstance(v, Mapping) else v for k, v in settings.items() if v is not None}
    return {k: v for k, v in cleaned.items() if v != {}}


def read_config(folder: Path) -> Settings:
    """The settings of the run in `folder`."""
    file = folder / "config.yaml"
    if not file.is_file():
        raise DataError(
            f"{folder} is not a run: it has no config.yaml",
            "a run folder is what `longtail train` writes",
            "`longtail list runs` shows those that there are",
            code="no-run",
        )
    try:
        settings = _read_yaml(file)
    except UsageError as error:
        raise DataError(error.what, code="broken-config") from error
    if not settings:
        raise DataError(f"{file} is empty", code="broken-config")
    return settings


def check_settings(old: Mapping[str, Any], new: Mapping[str, Any], free: Collection[str] = FREE_ON_RESUME) -> None:
    """Refuse to resume with settings that change what comes out."""
    changed = [change for key, change in changed_settings(old, new).items() if key not in free]
    if changed:
        raise UsageError(
            f"a resumed run cannot change {', '.join(changed)}",
            "the result would belong to neither",
            f"leave them out, or start a new run; free to change are {', '.join(sorted(free))}",
        )


def changed_settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """What differs, by its key, such as `optim.lr (0.1 to 0.2)`."""
    before, after = _flatten(old), _flatten(new)
    keys = [key for key in (before | after) if before.get(key) != after.get(key)]
    return {key: f"{key} ({before.get(key)!r} to {after.get(key)!r})" for key in keys}


def _resume(folder: Path, changes: Settings) -> RunConfig:
    old, where = read_config(folder), str(folder / "config.yaml")
    check_keys(changes, "")
    config = build_config(merge(old, changes), where)
    check_settings(build_config(old, where).as_dict(), config.as_dict())
    return config


def _override(flags: Mapping[str, Any], overrides: Iterable[str]) -> Settings:
    given = without_none(flags)
    for text in overrides:
        given = merge(given, parse_override(text))
    return given


def _few(value: Any) -> Any:
    """The same value, with everything that its aliases stand for; a few lines of YAML can stand for billions."""
    waiting, seen = [value], 0
    while waiting:
        part = waiting.pop()
        seen += 1
        if seen > _MOST_VALUES:
            raise ValueError(f"it stands for more than {_MOST_VALUES:,} values")
        if isinstance(part, Mapping):
            waiting += [*part.keys(), *part.values()]
        elif isinstance(part, list | tuple | set):
            waiting += part
    return value


def _as_method(value: Any) -> Settings:
    if value is not None and not isinstance(value, str | Mapping):
        raise UsageError(f"method and head must be a name or a group of settings, got {_short(repr(value))}")
    return {"name": value} if isinstance(value, str) else dict(value or {})


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> Settings:
    flat: Settings = {}
    for key, value in settings.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _read_yaml(file: Path) -> Settings:
    try:
        settings = _few(yaml.safe_load(file.read_text(encoding="utf-8"))) or {}
    except OSError as error:
        beside = [other.name for other in file.parent.iterdir()] if file.parent.is_dir() else []
        near = difflib.get_close_matches(file.name, beside, n=1)
        fix = f"did you mean {file.parent / near[0]}?" if near else "name a YAML file, such as runs/a/config.yaml"
        raise UsageError(f"cannot read {file}: {error.strerror}", "", fix) from error
    except _NO_YAML as error:
        raise UsageError(f"{file} is not YAML in UTF-8: {str(error).splitlines()[0]}") from error
    if not isinstance(settings, dict):
        raise UsageError(f"{file} must hold settings by name, got {type(settings).__name__}")
    return settings
