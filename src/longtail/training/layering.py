"""Where settings come from: flags before the environment before a config file before the recipe.

A recipe is packaged YAML, `recipes/<data set>/<method>.yaml`, or `recipes/default/<method>.yaml` for a data
set without one of its own; it holds what differs from the defaults of `RunConfig`.
"""

import difflib
import os
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from longtail._errors import UsageError

Settings = dict[str, Any]

# Environment variables with our prefix that are no settings.
_OTHER_VARIABLES = {"LONGTAIL_DATA", "LONGTAIL_KERNELS"}

# How much of its epochs a recipe keeps with --budget; a run has at least _FEWEST epochs.
BUDGETS = {"paper": 1.0, "quick": 0.05}
_FEWEST = 5


def resolve(
    flags: Mapping[str, Any],
    *,
    config_file: Path | None = None,
    overrides: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
    budget: str = "paper",
) -> Settings:
    """Put the layers together.

    Args:
        flags: nested settings that were given as flags; None stands for not given.
        config_file: a YAML file of settings.
        overrides: `key=value` texts with dots in the key, as `--set` takes them.
        environment: variables; those of the process if None.
        budget: "paper", or "quick", which keeps a twentieth of the recipe's epochs.
    """
    given = without_none(flags)
    for text in overrides:
        given = merge(given, parse_override(text))
    variables = from_environment(os.environ if environment is None else environment)
    file = read_settings(config_file) if config_file else {}
    above = merge(merge(file, variables), given)
    recipe = find_recipe(str(above.get("data", "digits-lt")), _method_name(above))
    if budget not in BUDGETS:
        raise UsageError(f"budget must be one of {', '.join(BUDGETS)}, got {budget!r}")
    if "epochs" in recipe:
        recipe["epochs"] = max(_FEWEST, round(recipe["epochs"] * BUDGETS[budget]))
    if _method_name(recipe) != _method_name(above):
        recipe["method"] = {}
    return merge(recipe, above)


def find_recipe(data: str, method: str) -> Settings:
    """The packaged settings for a method on a data set; empty if there are none."""
    folder = resources.files("longtail.recipes")
    name = data.partition(":")[0].rstrip("/")
    for place in (name, "default"):
        file = folder / place / f"{method}.yaml"
        if "/" not in place and file.is_file():
            return _parse(file.read_text(encoding="utf-8"), f"the recipe {place}/{method}")
    return {}


def list_recipes() -> list[str]:
    """The names of the packaged recipes, `<data set>/<method>`."""
    folders = [place for place in resources.files("longtail.recipes").iterdir() if place.is_dir()]
    files = [(place.name, file.name) for place in folders for file in place.iterdir()]
    return sorted(f"{place}/{name.removesuffix('.yaml')}" for place, name in files if name.endswith(".yaml"))


def read_settings(file: Path) -> Settings:
    """Settings from a YAML file."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        beside = [other.name for other in file.parent.iterdir()] if file.parent.is_dir() else []
        near = difflib.get_close_matches(file.name, beside, n=1)
        hint = f"did you mean {file.parent / near[0]}?" if near else "name a YAML file, such as runs/a/config.yaml"
        raise UsageError(f"cannot read {file}: {error.strerror}", "", hint) from error
    return _parse(text, str(file))


def parse_override(text: str) -> Settings:
    """`optim.lr=0.1` as nested settings; the value is YAML."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set must be key=value, got {text!r}", "", "such as --set optim.momentum=0.9")
    return _nest(key.strip().split("."), _value(value, text))


def from_environment(variables: Mapping[str, str]) -> Settings:
    """`LONGTAIL_EPOCHS=10` and `LONGTAIL_OPTIM__LR=0.1` as nested settings."""
    settings: Settings = {}
    for name, value in sorted(variables.items()):
        if name.startswith("LONGTAIL_") and name not in _OTHER_VARIABLES:
            keys = name.removeprefix("LONGTAIL_").lower().split("__")
            settings = merge(settings, _nest(keys, _value(value, name)))
    return settings


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> Settings:
    """`above` over `below`, group by group; a method of another name replaces the one below with its arguments."""
    result = dict(below)
    for name, value in above.items():
        old = result.get(name)
        if name == "method":
            value, old = _as_method(value), _as_method(old)
            if old and value.get("name", old.get("name")) != old.get("name"):
                old = {}
        result[name] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def _as_method(value: Any) -> Settings:
    return {"name": value} if isinstance(value, str) else dict(value or {})


def _method_name(settings: Mapping[str, Any]) -> str:
    return str(_as_method(settings.get("method")).get("name", "compound_bn"))


def without_none(settings: Mapping[str, Any]) -> Settings:
    """Leave out what was not given."""
    cleaned = {k: without_none(v) if isinstance(v, Mapping) else v for k, v in settings.items() if v is not None}
    return {k: v for k, v in cleaned.items() if v != {}}


def _nest(keys: list[str], value: Any) -> Settings:
    for key in reversed(keys):
        value = {key: value}
    return value if isinstance(value, dict) else {}


def _value(text: str, where: str) -> Any:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"{where} has a value that is no YAML: {text!r}") from error
    if isinstance(value, str):
        try:
            return float(value)  # YAML reads 5e-4 as text
        except ValueError:
            return value
    return value


def _parse(text: str, where: str) -> Settings:
    try:
        settings = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise UsageError(f"{where} is no YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(settings, dict):
        raise UsageError(f"{where} must hold settings by name, got {type(settings).__name__}")
    return settings
