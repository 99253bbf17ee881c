"""Recipes: packaged YAML, `recipes/<data set>/<method>.yaml`, with what differs from the defaults of `RunConfig`.

A data set without a recipe of its own takes `recipes/default/<method>.yaml`.
"""

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
        method: the method's name.
        budget: "paper", or "quick" for a twentieth of the recipe's epochs.
    """
    if budget not in BUDGETS:
        raise UsageError(f"budget must be {' or '.join(BUDGETS)}, got {budget!r}")
    folder = resources.files("longtail.recipes")
    name = data.partition(":")[0].rstrip("/")
    for place in (name, "default"):
        file = folder / place / f"{method}.yaml"
        if "/" not in place and file.is_file():
            recipe: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
            if "epochs" in recipe:
                recipe["epochs"] = max(_FEWEST, round(recipe["epochs"] * BUDGETS[budget]))
            return recipe
    return {}


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
