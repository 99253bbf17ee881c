"""Recipes: packaged YAML, `recipes/<data set>/<method>.yaml`, with what differs from the defaults of `RunConfig`.

A data set without a recipe of its own takes `recipes/default/<method>.yaml`.

A preset is a method with settings, under a name of its own: `ldam_drw` is `erm` with the loss `ldam`. Its recipe,
`recipes/default/<preset>.yaml`, has the method alone; the rest is that of the method's recipe for the data set. A data
set with the authors' settings has a whole recipe for it.
"""

import itertools
import re
from importlib import resources
from typing import Any

import yaml

from longtail._errors import UsageError

# The share of its epochs that a recipe keeps; it keeps at least _FEWEST.
BUDGETS = {"paper": 1.0, "quick": 0.05}
_FEWEST = 5
_FROM_SCRATCH = {"cifar10-lt", "cifar100-lt", "fashion-mnist-lt", "imagenet-lt", "places-lt", "inaturalist2018"}


def find_recipe(data: str, method: str, budget: str = "paper") -> dict[str, Any]:
    """The packaged settings for a method on a data set; empty if there are none.

    Args:
        data: a name such as `cifar10-lt:50`; a folder or a CSV takes the default recipe.
        method: the name of a method or a preset.
        budget: "paper", or "quick" for a twentieth of the recipe's epochs.
    """
    if budget not in BUDGETS:
        raise UsageError(f"budget must be {' or '.join(BUDGETS)}, got {budget!r}")
    name = data.partition(":")[0].rstrip("/")
    recipe = _read(name, method)
    if not recipe:
        recipe = _read("default", method)
        base = recipe.get("method", {}).get("name", method)
        if base != method:  # a preset, without a recipe for these data
            below = _read(name, base) or _read("default", base)
            view = {key: value for key, value in below["method"].items() if key == "view"}
            recipe = below | recipe | {"method": view | recipe["method"]}
    if "epochs" in recipe:
        recipe["epochs"] = max(_FEWEST, round(recipe["epochs"] * BUDGETS[budget]))
    return recipe


def _read(place: str, method: str) -> dict[str, Any]:
    file = resources.files("longtail.recipes") / place / f"{method}.yaml"
    if "/" in place or not file.is_file():
        return {}
    recipe: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    return recipe


def list_presets() -> dict[str, dict[str, Any]]:
    """The settings of the method of each preset, `name` among them, by the preset's name."""
    names = [name.removeprefix("default/") for name in list_recipes() if name.startswith("default/")]
    methods: dict[str, dict[str, Any]] = {name: _read("default", name)["method"] for name in names}
    return {name: method for name, method in methods.items() if method["name"] != name}


def describe_preset(name: str) -> str:
    """The first sentence of the comment that its recipe starts with."""
    text = (resources.files("longtail.recipes") / "default" / f"{name}.yaml").read_text(encoding="utf-8")
    lines = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    return re.split(r"(?<=[.!?]) ", " ".join(line.strip("# ") for line in lines))[0]


def default_method(data: str, pretrained: object = None) -> str:
    """What trains when nobody says how.

    Your own images, and the embedded digits, start from pretrained weights. The other benchmarks are trained from
    scratch, as in their papers, unless weights are asked for.

    Args:
        data: as `find_recipe` has it.
        pretrained: the setting of the model; None if it is not given.
    """
    benchmark = data.partition(":")[0] in _FROM_SCRATCH
    from_scratch = pretrained is False or (benchmark and pretrained is None)
    return "erm" if from_scratch else "fine_tune"


def list_recipes() -> list[str]:
    """The names of the packaged recipes, `<data set>/<method>`."""
    folders = [place for place in resources.files("longtail.recipes").iterdir() if place.is_dir()]
    files = [(place.name, file.name) for place in folders for file in place.iterdir()]
    return sorted(f"{place}/{name.removesuffix('.yaml')}" for place, name in files if name.endswith(".yaml"))
