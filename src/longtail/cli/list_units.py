"""`longtail list methods|heads|models|datasets|losses|samplers|recipes|runs`."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from longtail._errors import counted

Kind = Literal["methods", "heads", "models", "datasets", "losses", "samplers", "recipes", "runs"]


def list_units(
    kind: Annotated[Kind, Parameter(name="KIND")],
    /,
    pattern: str = "*",
    *,
    runs: Path = Path("runs"),
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Show methods, heads, models, data sets, losses, samplers, recipes or runs.

    Parameters
    ----------
    kind
        methods, heads, models, datasets, losses, samplers, recipes or runs.
    pattern
        Only names that match this pattern, such as 'resnet*'.
    runs
        The folder of the runs.
    json
        Print one JSON array.
    """
    import fnmatch

    found = [row for row in _rows(kind, runs) if fnmatch.fnmatch(row["name"], pattern)]
    if json:
        import json as encoder

        print(encoder.dumps(found, indent=2))
        return 0
    width = max((len(row["name"]) for row in found), default=0)
    for row in found:
        print(f"{row['name']:<{width}}  {row['about']}".rstrip())
    return 0


def _rows(kind: Kind, runs: Path) -> list[dict[str, str]]:
    """The name of each unit and a line about it."""
    if kind == "runs":
        return (
            [_run(path) for path in sorted(runs.iterdir()) if (path / "config.yaml").is_file()] if runs.is_dir() else []
        )
    if kind == "recipes":
        from longtail.training.recipes import list_recipes

        return [{"name": name, "about": ""} for name in list_recipes()]
    if kind == "models":
        from longtail.models import list_models

        return [{"name": name, "about": ""} for name in list_models()]
    if kind == "datasets":
        from longtail.data.datasets import DATASETS

        return [{"name": name, "about": ""} for name in DATASETS]
    if kind == "samplers":
        from longtail.data.samplers import SAMPLERS

        return [{"name": name, "about": _about(SAMPLERS[name])} for name in SAMPLERS]
    if kind == "losses":
        from longtail.losses import LOSSES

        return [{"name": name, "about": _about(LOSSES[name])} for name in LOSSES]
    if kind == "heads":
        from longtail.heads import HEADS

        return [{"name": name, "about": _about(HEADS[name])} for name in HEADS]
    from longtail.methods import METHODS

    return [{"name": name, "about": _about(METHODS[name])} for name in METHODS]


def _about(unit: type) -> str:
    """The first sentence of the unit's module, which explains it; of the unit itself if the module has none."""
    import re
    import sys

    text = (sys.modules[unit.__module__].__doc__ or unit.__doc__ or "").strip()
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) ", paragraph)[0]


def _run(path: Path) -> dict[str, str]:
    from longtail.training.settings import read_config

    settings = read_config(path)
    state = "finished" if (path / "predictions.csv").exists() else "not finished"
    method = settings.get("method", {}).get("name", "?")
    epochs = counted(settings.get("epochs") or 0, "epoch")
    about = f"{method} on {settings.get('data')}, {epochs}, seed {settings.get('seed')}: {state}"
    return {"name": str(path), "about": about}
