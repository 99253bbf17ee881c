"""The tables of README.md, from the records, between their markers: one for each folder.

    python -m benchmarks.studies.heads.table

Scores are in points: the mean over seeds ± their standard deviation. The difference to the default head is paired by
seed, with the 95 % interval of its mean by Student's t.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy import stats

from benchmarks.record import read_records
from benchmarks.studies.folders.make_folders import MAKERS
from benchmarks.studies.folders.table import fill
from benchmarks.studies.heads.run import HERE

DEFAULT = "linear"
_COLUMNS = {"balanced": "Balanced", "many": "Many", "medium": "Medium", "few": "Few"}


def tables(records: Sequence[Mapping[str, Any]]) -> str:
    """A heading and a table for each folder that has records."""
    parts = []
    for name in MAKERS:
        arms: dict[str, dict[int, Mapping[str, Any]]] = {}
        for record in records:
            if record["set"] == name:
                arms.setdefault(record["arm"], {})[record["seed"]] = record["metrics"]
        if arms:
            parts.append(f"### {name}\n\n{table(arms)}")
    return "\n\n".join(parts)


def table(arms: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> str:
    """A row for each head, the best balanced accuracy first."""
    columns = {key: title for key, title in _COLUMNS.items() if key in next(iter(next(iter(arms.values())).values()))}
    header = ["Head", "Seeds", *columns.values(), f"Beside `{DEFAULT}`"]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for arm in sorted(arms, key=lambda name: -statistics.mean(points(arms[name], "balanced"))):
        values = (points(arms[arm], key) for key in columns)
        cells = [f"`{arm}`", str(len(arms[arm])), *(f"{statistics.mean(v):.1f}{_deviation(v)}" for v in values)]
        cells.append("" if arm == DEFAULT else difference(arms[arm], arms.get(DEFAULT, {})))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def points(runs: Mapping[int, Mapping[str, Any]], key: str) -> list[float]:
    """A metric of all seeds, in points."""
    return [100 * float(metrics[key]) for metrics in runs.values()]


def difference(runs: Mapping[int, Mapping[str, Any]], default: Mapping[int, Mapping[str, Any]]) -> str:
    """The mean difference in balanced accuracy over the seeds of both, with its interval.

    Example:
        >>> difference({0: {"balanced": 0.5}, 1: {"balanced": 0.6}}, {0: {"balanced": 0.4}, 1: {"balanced": 0.5}})
        '+10.0 (+10.0 to +10.0)'
    """
    common = sorted(runs.keys() & default.keys())
    found = [100 * (float(runs[seed]["balanced"]) - float(default[seed]["balanced"])) for seed in common]
    if len(found) < 2:
        return ""
    mean, error = statistics.mean(found), statistics.stdev(found) / len(found) ** 0.5
    reach = float(stats.t.ppf(0.975, len(found) - 1)) * error
    return f"{mean:+.1f} ({mean - reach:+.1f} to {mean + reach:+.1f})"


def _deviation(values: Sequence[float]) -> str:
    return f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""


def main() -> None:
    """Fill README.md."""
    page: Path = HERE / "README.md"
    page.write_text(fill(page.read_text(encoding="utf-8"), tables(read_records(HERE / "results.jsonl"))), "utf-8")


if __name__ == "__main__":
    main()
