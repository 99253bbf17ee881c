"""The table of README.md, from the records, between its markers.

    python -m benchmarks.studies.methods_learn.table

Accuracies are in points: the mean over seeds ± their standard deviation, after the last epoch. The difference to
cross-entropy is paired by seed: the same images to train on, the same first weights where networks are the same.
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import read_records
from benchmarks.studies.folders.table import fill
from benchmarks.studies.methods_learn.run import REFERENCE, RESULTS

_COLUMNS = {"balanced": "Balanced", "accuracy_many": "Many", "accuracy_medium": "Medium", "accuracy_few": "Few"}
Runs = Mapping[int, Mapping[str, Any]]


def runs_by_arm(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, Mapping[str, Any]]]:
    """The metrics of each arm by seed; of two records of one seed the later counts."""
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    for record in records:
        found.setdefault(record["arm"], {})[record["seed"]] = record["metrics"]
    return found


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """A row for each arm, the best balanced accuracy first."""
    arms = runs_by_arm(records)
    header = ["Method or preset", "Seeds", *_COLUMNS.values(), "Beside cross-entropy", "Seconds"]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for arm in sorted(arms, key=lambda name: -statistics.mean(_values(arms[name], "balanced"))):
        own = arms[arm]
        cells = [f"`{arm}`", str(len(own)), *(_spread(_values(own, name)) for name in _COLUMNS)]
        cells.append("" if arm == REFERENCE else _spread(differences(own, arms.get(REFERENCE, {})), sign="+"))
        cells.append(f"{statistics.mean(float(metrics['seconds']) for metrics in own.values()):.0f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def differences(own: Runs, reference: Runs, metric: str = "balanced") -> list[float]:
    """In points, for each seed that both have."""
    return [100 * (own[seed][metric] - reference[seed][metric]) for seed in sorted(own.keys() & reference.keys())]


def _values(runs: Runs, metric: str) -> list[float]:
    return [100 * metrics[metric] for metrics in runs.values() if metrics.get(metric) is not None]


def _spread(values: Sequence[float], sign: str = "") -> str:
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):{sign}.1f}{spread}"


def main() -> None:
    """Rewrite the table of the page."""
    parser = argparse.ArgumentParser(description="Rewrite the table of README.md.")
    parser.add_argument("--records", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=RESULTS.with_name("README.md"))
    options = parser.parse_args()
    page = options.page.read_text(encoding="utf-8")
    options.page.write_text(fill(page, table(read_records(options.records))), encoding="utf-8")


if __name__ == "__main__":
    main()
