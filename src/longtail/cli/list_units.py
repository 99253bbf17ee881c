"""`longtail list methods|heads|models|datasets|losses|samplers|recipes|runs`."""

import shutil
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from longtail._errors import counted
from longtail._printable import show

Kind = Literal["methods", "heads", "models", "datasets", "losses", "samplers", "recipes", "runs"]
# What `list runs` shows of a run.
_SCORES = ("balanced", "top1", "few")
# A description is not wrapped to less.
_NARROWEST = 25


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

        show(encoder.dumps(found, indent=2))
        return 0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in _lines(found, width):
        show(line)
    if not found:
        show(
            f"no runs in {runs}" if kind == "runs" and pattern == "*" else f"nothing matches {pattern}", file=sys.stderr
        )
    return 0


def _lines(rows: list[dict[str, Any]], width: int | None = None) -> list[str]:
    """A line for each unit; what methods cost and need stands in columns, so that they can be compared."""
    kinds: dict[str, tuple[str, ...]] = {"passes": ("passes", "stages", "views", "needs"), "balanced": _SCORES}
    columns = next((columns for kind, columns in kinds.items() if rows and kind in rows[0]), ())
    shown = [[row["name"], *(_cell(column, row[column]) for column in columns)] for row in rows]
    if columns:
        shown.insert(0, ["name", *columns])
    widths = [max(len(cells[number]) for cells in shown) for number in range(len(columns) + 1)] if shown else []
    starts = ["  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)) for cells in shown]
    abouts = [*([""] if columns else []), *(row["about"] for row in rows)]
    if columns and columns != _SCORES:
        abouts = [about.rpartition(": ")[2] for about in abouts]  # what stands before a colon is the name again
    return [line for unit in zip(starts, abouts, strict=True) for line in _beside(*unit, width)]


def _beside(start: str, about: str, width: int | None) -> list[str]:
    """The lines of a unit: its description goes on below itself where the terminal ends."""
    room = sys.maxsize if width is None else max(width - len(start) - 2, _NARROWEST)
    first, *rest = textwrap.wrap(about, room) or [""]
    return [f"{start}  {first}".rstrip(), *(" " * (len(start) + 2) + line for line in rest)]


def _cell(column: str, value: Any) -> str:
    if column in _SCORES:
        return "-" if value is None else f"{100 * value:.1f}"
    if column == "needs":
        return ", ".join(value) or "-"
    return f"{len(value) if isinstance(value, list) else value:.2g}"


def _rows(kind: Kind, runs: Path) -> list[dict[str, Any]]:
    """The name of each unit and a line about it."""
    if kind == "runs":
        if not runs.is_dir():
            return []
        next(runs.iterdir(), None)  # raises where it cannot be listed, while glob finds nothing then
        return [_run(file.parent) for file in sorted([*runs.glob("*/config.yaml"), *runs.glob("*/*/config.yaml")])]
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
    return _method_rows()


def _method_rows() -> list[dict[str, Any]]:
    """Methods and presets, by name; each is built around a small network to see its stages and views."""
    from longtail.methods import METHODS
    from longtail.training.recipes import describe_preset, list_presets

    rows = [
        {"name": name, "about": _about(METHODS[name]), "preset_of": None, "settings": {}, **_shape(name, {})}
        for name in METHODS
    ]
    for name, method in list_presets().items():
        settings = {key: value for key, value in method.items() if key != "name"}
        about = {"name": name, "about": describe_preset(name), "preset_of": method["name"], "settings": settings}
        rows.append(about | _shape(method["name"], settings))
    return sorted(rows, key=lambda row: str(row["name"]))


def _shape(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    from longtail.methods import METHODS
    from longtail.models import create_model

    kind = METHODS[name]
    try:
        arguments: dict[str, Any] = settings | dict.fromkeys(kind.needs)
        built = kind(create_model("resnet8", 3), [3, 2, 1], **arguments)
        stages, views, samplers = len(built.stages), list(built.views), list(built.samplers)
    except ValueError:  # one that takes no convolutional network has one stage and one view, and says so if not
        stages, views, samplers = len(kind.stages), ["weak"], ["instance"]
    return {
        "passes": kind.passes,
        "stages": stages,
        "views": views,
        "samplers": samplers,
        "needs": list(kind.needs),
    }


def _about(unit: type) -> str:
    """The first sentence of the unit's module, which explains it; of the unit itself if the module has none."""
    import re

    text = (sys.modules[unit.__module__].__doc__ or unit.__doc__ or "").strip()
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) ", paragraph)[0]


def _run(path: Path) -> dict[str, Any]:
    """A run with its scores on its test images; none where it is not finished."""
    from longtail.training.settings import read_config

    settings = read_config(path)
    finished = (path / "predictions.csv").exists()
    method = settings.get("method", {}).get("name", "?")
    how = f"{method}, {counted(settings.get('epochs') or 0, 'epoch')}"
    if settings.get("head") and not settings.get("epochs"):
        how = f"{settings['head'].get('name')} head"
    row: dict[str, Any] = {"name": str(path), "state": "finished" if finished else "not finished"}
    row |= dict.fromkeys(_SCORES) | (_scores(path) if finished else {})
    return row | {"about": f"{how} on {settings.get('data')}, seed {settings.get('seed')}: {row['state']}"}


def _scores(path: Path) -> dict[str, float | None]:
    """Balanced accuracy, top-1 and that of the few-shot classes, from the predictions."""
    from longtail._errors import LongtailError
    from longtail.evaluation.confusion_matrix import confusion_matrix, mean_over_support, recall_per_class
    from longtail.training.run_folder.read import open_run

    try:
        run = open_run(path)
        found = run.predictions()
    except LongtailError:
        return {}
    confusion = confusion_matrix(found.target, found.logits.argmax(1), len(run.classes))
    recall = recall_per_class(confusion)
    few = run.class_counts.groups().get("few")
    return {
        "balanced": mean_over_support(recall),
        "top1": float(confusion.trace() / confusion.sum()),
        "few": None if few is None else mean_over_support(recall[few]),
    }
