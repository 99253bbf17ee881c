"""The table of README.md, from the records, between its markers.

python -m benchmarks.robustness.table
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import read_records
from benchmarks.studies.folders.table import fill

RESULTS = Path(__file__).parent / "results.jsonl"
Metrics = Mapping[str, Any]
# Benchmark: what a case is, how many a record has, and which of them went wrong.
ROWS: Mapping[str, tuple[str, Callable[[Metrics], int], Callable[[Metrics], Sequence[str]]]] = {
    "kill_and_resume": (
        "kills of a training by one rank, every method",
        lambda metrics: metrics["killed_alive"],
        lambda metrics: metrics["broken"],
    ),
    "kill_anywhere": (
        "kills of a training by two ranks, an evaluation, a report or an export",
        lambda metrics: metrics["killed_alive"],
        lambda metrics: metrics["broken"],
    ),
    "flip_bits": (
        "bits flipped in files of a run, which is then used",
        lambda metrics: metrics["flips"],
        lambda metrics: metrics["faults"],
    ),
    "lose_writes": (
        "power cuts that lose what was not flushed",
        lambda metrics: metrics["cases"],
        lambda metrics: metrics["faults"],
    ),
    "fuzz": (
        "broken settings, lists, files, checkpoints and images",
        lambda metrics: sum(metrics["cases"].values()),
        lambda metrics: metrics["faults"],
    ),
}


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """A row for each benchmark that has records."""
    lines = ["| `python -m benchmarks.robustness...` | What | Cases | Faults | Commits |", "|---|---|---|---|---|"]
    for name, (what, count, faults) in ROWS.items():
        found = [record for record in records if record["benchmark"] == name]
        if found:
            cases = sum(count(record["metrics"]) for record in found)
            wrong = sum(len(faults(record["metrics"])) for record in found)
            commits = ", ".join(dict.fromkeys(record["commit"] for record in found))
            lines.append(f"| `{name}` | {what} | {cases:,} | {wrong} | {commits} |")
    return "\n".join(lines)


def main() -> None:
    """Rewrite the table of the page."""
    page = RESULTS.with_name("README.md")
    content = fill(page.read_text(encoding="utf-8"), table(read_records(RESULTS)))
    page.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
