"""The tables of README.md, from the records: one for each set, between its markers.

    python -m benchmarks.studies.folders.table [--records results.jsonl]

Scores are the mean over seeds ± their standard deviation, in points. A peer's difference is longtail's score minus its
own. The interval is a paired bootstrap over test images, stratified by class: a resample draws the same images for
both, and each image counts with the share of seeds that get it right. It holds for these trained models: with three
seeds the spread beside the mean says more about another seed.
"""

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import read_records
from benchmarks.studies.folders.make_folders import MAKERS
from benchmarks.studies.folders.peers import PEERS
from benchmarks.studies.folders.score import Floats, class_means, labels_of
from longtail.class_counts import GROUPS, ClassCounts
from longtail.evaluation.bootstrap import resample

HERE = Path(__file__).parent
START, END = "<!-- tables: start -->", "<!-- tables: end -->"
OURS = "longtail"
REPLICATES = 2000


def tables(records: Sequence[dict[str, Any]]) -> str:
    """All sets that have records, as Markdown."""
    parts = []
    for name in MAKERS:
        runs: dict[str, list[dict[str, Any]]] = {}
        for record in records:
            if record["set"] == name:
                runs.setdefault(record["peer"], []).append(record)
        if runs:
            parts.append(f"### {name}\n\n{table(runs)}")
    return "\n\n".join(parts)


def table(runs: dict[str, list[dict[str, Any]]]) -> str:
    """One set: a row for each peer, the best balanced accuracy first."""
    groups = [group for group in GROUPS if group in next(iter(runs.values()))[0]["metrics"]]
    header = ["Peer", "Seeds", "Balanced", *(group.title() for group in groups), "Core-seconds"]
    compared = OURS in runs and len(runs) > 1
    if compared:
        header += ["longtail ahead by", *(["on few"] if "few" in groups else [])]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for peer in sorted(runs, key=lambda name: -_mean(runs[name], "balanced")):
        own = runs[peer]
        cells = [PEERS[peer].title, str(len(own)), *(_spread(own, name) for name in ("balanced", *groups))]
        cells.append(f"{statistics.mean(_seconds(record) for record in own):.0f}")
        if compared:
            names = ["balanced", *(["few"] if "few" in groups else [])]
            cells += ["" if peer == OURS else _difference(runs[OURS], own, name) for name in names]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def difference(
    first: Sequence[dict[str, Any]], second: Sequence[dict[str, Any]], metric: str
) -> tuple[float, float, float]:
    """The score of `first` minus that of `second`, both means over seeds, with the ends of its 95 % interval."""
    counts, test = (first[0][name] for name in ("class_counts", "test_counts"))
    groups = ClassCounts(counts).groups()
    classes = list(range(len(counts))) if metric == "balanced" else next(k for g, k in groups.items() if g == metric)
    gap = _share_right(first) - _share_right(second)

    def means(values: Floats) -> Floats:
        return np.asarray(class_means(values, test)[..., classes].mean(axis=-1))

    drawn = [
        means(gap[rows]) for rows in resample(labels_of(test), replicates=REPLICATES, resampling="stratified", seed=0)
    ]
    low, high = np.quantile(np.concatenate(drawn), [0.025, 0.975])
    return float(means(gap)), float(low), float(high)


def _share_right(runs: Sequence[dict[str, Any]]) -> Floats:
    """For each test image, the share of runs that get it right."""
    labels = labels_of(runs[0]["test_counts"])
    right = np.array([np.asarray(record["predictions"]) == labels for record in runs], dtype=np.float64)
    return np.asarray(right.mean(axis=0))


def _difference(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]], metric: str) -> str:
    value, low, high = (100 * number for number in difference(ours, theirs, metric))
    return f"{value:+.1f} ({low:+.1f} to {high:+.1f})"


def _mean(runs: Sequence[dict[str, Any]], metric: str) -> float:
    return statistics.mean(float(record["metrics"][metric]) for record in runs)


def _spread(runs: Sequence[dict[str, Any]], metric: str) -> str:
    values = [100 * record["metrics"][metric] for record in runs]
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def _seconds(record: dict[str, Any]) -> float:
    """The rival's clock, without imports and evaluation; for longtail, which has none, the whole command."""
    metrics = record["metrics"]
    return float(metrics.get("core_seconds_training", metrics["core_seconds"]))


def fill(page: str, content: str) -> str:
    """The page with `content` between its markers."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise ValueError(f"the page must have the lines {START} and {END}, got a page without them")
    return f"{before}{START}\n\n{content}\n\n{END}{after}"


def main() -> None:
    """Rewrite the tables of the page."""
    parser = argparse.ArgumentParser(description="Rewrite the tables of README.md.")
    parser.add_argument("--records", type=Path, default=HERE / "results.jsonl")
    parser.add_argument("--page", type=Path, default=HERE / "README.md")
    options = parser.parse_args()
    page = options.page.read_text(encoding="utf-8")
    options.page.write_text(fill(page, tables(read_records(options.records))), encoding="utf-8")


if __name__ == "__main__":
    main()
