"""The numbers of a page as JSON inside it, so that a script can read what a person sees."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from longtail.evaluation.comparison import Comparison
from longtail.evaluation.mixture import MixtureLayer
from longtail.evaluation.mixture_record import MixtureRecord
from longtail.evaluation.report.report import Report
from longtail.evaluation.result import Evaluation

MOST_CONFUSIONS = 10_000


def report_json(report: Report) -> str:
    """All of a report but its pictures; `training` equals the rows of metrics.csv."""
    groups = class_groups(report.evaluation)
    evaluation = json.loads(report.evaluation.to_json())
    # A thousand classes may be confused in tens of thousands of ways; predictions.csv has them all.
    cells = sorted(evaluation["confusions"], key=lambda cell: -cell[2])
    evaluation["confusions"] = sorted(cells[:MOST_CONFUSIONS])
    evaluation["confusions_left_out"] = len(cells[MOST_CONFUSIONS:])
    data = {
        "evaluation": evaluation,
        "title": report.title,
        "selection": report.selection,
        "posthoc": [{"choice": asdict(p.choice), "metrics": p.evaluation.metrics} for p in report.posthoc],
        "shifted": [asdict(s) for s in report.shifted],
        "mixture": [_layer(layer, report.evaluation) for layer in report.mixture],
        "mixture_history": [_record(record, groups) for record in report.mixture_history],
        "training": [_finite(row) for row in report.training],
        "problems": list(report.problems),
        "departures": list(report.departures),
        "config": report.config,
        "environment": dict(report.environment),
        "command": report.command,
    }
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def comparison_json(comparison: Comparison) -> str:
    """Every run's metrics and every difference."""
    data = {
        "baseline": comparison.baseline,
        "metrics": {name: found.metrics for name, found in comparison.evaluations.items()},
        "differences": [asdict(d) | {"verdict": d.verdict} for d in comparison.differences],
        "class_differences": [asdict(d) for d in comparison.class_differences],
        "classes": [c.name for c in comparison.evaluations[comparison.baseline].classes],
        "bootstrap": asdict(comparison.bootstrap),
    }
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _layer(layer: MixtureLayer, found: Evaluation) -> dict[str, Any]:
    """A layer with its use by group: by class, 31 layers and 1,000 classes would be half of the page."""
    uses = {group: layer.use_by(classes) for group, classes in class_groups(found).items()}
    return {
        "name": layer.name,
        "priors": layer.priors,
        "distances": layer.distances,
        "effective_components": layer.effective_components,
        "collapse": layer.collapse,
        "usage": {group: use for group, use in uses.items() if use is not None},
    }


def _record(record: MixtureRecord, groups: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """A record with three decimals and without pairs of components, which times twenty are much."""
    layers = []
    for layer in record.layers:
        uses = {group: layer.use_by(classes) for group, classes in groups.items()}
        layers.append(
            {
                "name": layer.name,
                "priors": [round(p, 3) for p in layer.priors],
                "effective_components": round(layer.effective_components, 3),
                "distance": None if layer.mean_distance is None else float(f"{layer.mean_distance:.3g}"),
                "usage": {group: [round(u, 3) for u in use] for group, use in uses.items() if use is not None},
            }
        )
    return {"epoch": record.epoch, "layers": layers}


def class_groups(found: Evaluation) -> dict[str, list[int]]:
    """The classes of each group that has any."""
    return {group: [k for k, c in enumerate(found.classes) if c.group == group] for group in found.groups}


def _finite(row: Mapping[str, float | None]) -> dict[str, float | str | None]:
    """JSON has no NaN and no infinity: they go in as the text that a CSV file shows."""
    return {key: v if v is None or math.isfinite(v) else str(v) for key, v in row.items()}
