"""The numbers of a page as JSON inside it, for scripts."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from longtail.evaluation.comparison import Comparison
from longtail.evaluation.report.report import Report

MOST_CONFUSIONS = 10_000


def report_json(report: Report, sections: Mapping[str, Mapping[str, Any]]) -> str:
    """All of a report except its images; `training` equals the rows of metrics.csv.

    Args:
        report: what the page shows.
        sections: the plain values of the sections that the method's records make, by name.
    """
    evaluation = json.loads(report.evaluation.to_json())
    # A thousand classes can have tens of thousands of confusions; predictions.csv has them all.
    cells = sorted(evaluation["confusions"], key=lambda cell: -cell[2])
    evaluation["confusions"] = sorted(cells[:MOST_CONFUSIONS])
    evaluation["confusions_left_out"] = len(cells[MOST_CONFUSIONS:])
    data = {
        "evaluation": evaluation,
        "title": report.title,
        "selection": report.selection,
        "posthoc": [{"choice": asdict(p.choice), "metrics": p.evaluation.metrics} for p in report.posthoc],
        "adjustment": None if report.adjustment is None else asdict(report.adjustment),
        "shifted": [asdict(s) for s in report.shifted],
        "sections": sections,
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
        "settings": {key: list(values) for key, values in comparison.setting_differences().items()},
        "metrics": {name: found.metrics for name, found in comparison.evaluations.items()},
        "differences": [asdict(d) | {"verdict": d.verdict} for d in comparison.differences],
        "class_differences": [asdict(d) for d in comparison.class_differences],
        "classes": [c.name for c in comparison.evaluations[comparison.baseline].classes],
        "bootstrap": asdict(comparison.bootstrap),
    }
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _finite(row: Mapping[str, float | None]) -> dict[str, float | str | None]:
    """NaN and infinity as text, as in the CSV file: JSON has neither."""
    return {key: v if v is None or math.isfinite(v) else str(v) for key, v in row.items()}
