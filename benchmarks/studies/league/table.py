"""The league tables of README.md, from the records, between its markers.

    python -m benchmarks.studies.league.table

Accuracies are in points: the mean over seeds ± their standard deviation. The difference to balanced softmax has a 95 %
interval, by a bootstrap of the test images that is paired: both are measured on the same drawn images.
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import read_records
from benchmarks.studies.folders.table import difference, fill
from benchmarks.studies.league.protocol import ARMS, TRACKS
from benchmarks.studies.league.run import RESULTS, records_of, unpack

REFERENCE = "balanced_softmax"
TITLES = {"scratch": "from scratch", "pretrained": "fine-tuned"}
_GROUPS = ("many", "medium", "few")
Records = Sequence[dict[str, Any]]


def tables(records: Records) -> str:
    """A table for each set of each track that has runs on its test images."""
    parts = [
        f"### {name}, {TITLES[track]}\n\n{table(runs)}"
        for track, shared in TRACKS.items()
        for name in shared.sets
        if (runs := runs_by_arm(records, track, name))
    ]
    return "\n\n".join(parts) or "No run has ended yet."


def runs_by_arm(records: Records, track: str, name: str) -> dict[str, list[dict[str, Any]]]:
    """The runs on the test images of a set, by arm."""
    return {arm: seeds for arm in ARMS if (seeds := _runs(records, track, name, arm))}


def accuracies(runs: Records, which: str) -> list[float]:
    """A number of each run: `core_minutes`, or `adjusted` for the balanced accuracy of adjusted logits, in shares."""
    found = [record["metrics"][which] for record in runs]
    return [float(value["balanced"] if isinstance(value, Mapping) else value) for value in found]


def _runs(records: Records, track: str, name: str, arm: str) -> list[dict[str, Any]]:
    """The runs of an arm on the test images, by seed; those that diverged have no accuracy and are left out."""
    own = records_of(records, track, name, arm, "seed")
    return sorted((record for record in own if "balanced" in record["metrics"]), key=lambda record: record["seed"])


def table(runs: Mapping[str, list[dict[str, Any]]]) -> str:
    """A row for each arm, the best balanced accuracy after adjustment first."""
    header = ["Arm", "Seeds", "Balanced", *(group.title() for group in _GROUPS), "ECE"]
    header += ["Adjusted", f"Adjusted, beside `{REFERENCE}`", "Core-minutes", "Epochs", "Parameters"]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for arm in sorted(runs, key=lambda name: -statistics.mean(_values(runs[name], "adjusted", "balanced"))):
        own = runs[arm]
        cells = [f"`{arm}`", str(len(own)), *(_spread(_values(own, name)) for name in ("balanced", *_GROUPS, "ece"))]
        cells.append(_spread(_values(own, "adjusted", "balanced")))
        cells.append(_beside(own, runs[REFERENCE]) if REFERENCE in runs and arm != REFERENCE else "")
        cells.append(f"{statistics.mean(record['metrics']['core_minutes'] for record in own):.1f}")
        cells += [str(own[0]["settings"]["epochs"]), f"{own[0]['metrics']['parameters'] / 1e6:.2f} M"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def beside_reference(own: Records, reference: Records) -> tuple[float, float, float]:
    """The difference in points of adjusted balanced accuracy, and its interval."""
    first, second = ([_as_scored(record) for record in runs] for runs in (own, reference))
    value, low, high = (100 * number for number in difference(first, second, "balanced"))
    return value, low, high


def _beside(own: Records, reference: Records) -> str:
    value, low, high = beside_reference(own, reference)
    return f"{value:+.1f} ({low:+.1f} to {high:+.1f})"


def _as_scored(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as the study of folders has it."""
    return {
        "class_counts": record["class_counts"],
        "test_counts": record["test_counts"],
        "predictions": unpack(record["predicted_adjusted"]),
    }


def _values(runs: Records, *path: str) -> list[float]:
    found = []
    for record in runs:
        value: Any = record["metrics"]
        for key in path:
            value = value.get(key, {}) if isinstance(value, Mapping) else value
        if isinstance(value, float):
            found.append(100 * value)
    return found


def _spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def main() -> None:
    """Rewrite the tables of the page."""
    parser = argparse.ArgumentParser(description="Rewrite the tables of README.md.")
    parser.add_argument("--records", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=RESULTS.with_name("README.md"))
    options = parser.parse_args()
    page = options.page.read_text(encoding="utf-8")
    options.page.write_text(fill(page, tables(read_records(options.records))), encoding="utf-8")


if __name__ == "__main__":
    main()
