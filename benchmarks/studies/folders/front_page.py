"""The table of the README at the root, from the records: balanced accuracy, and by how much longtail is ahead.

    python -m benchmarks.studies.folders.front_page

A peer has a row if it ran on every folder. Differences and intervals are those of `table`.
"""

from collections.abc import Sequence
from typing import Any

from benchmarks.record import ROOT, read_records
from benchmarks.studies.folders.table import HERE, OURS, difference, fill

PAGE = ROOT / "README.md"
FOLDERS = {"plants": "plants", "groceries": "groceries", "cifar100-lt": "CIFAR-100-LT", "digits-lt": "digits"}
PEERS = {
    OURS: "**longtail**",
    "linear_probe_balanced": "logistic regression",
    "timm": "timm",
    "autogluon": "AutoGluon",
    "fastai": "fastai",
    "ultralytics": "Ultralytics, from scratch",
}


def front_page(records: Sequence[dict[str, Any]]) -> str:
    """A row for each peer, a column for each folder."""
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        runs.setdefault((record["peer"], record["set"]), []).append(record)
    classes = {folder: len(runs[OURS, folder][0]["class_counts"]) for folder in FOLDERS}
    heads = [f"{name}, {classes[folder]} classes" for folder, name in FOLDERS.items()]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(FOLDERS) + 1) + "|"]
    for peer, name in PEERS.items():
        if all((peer, folder) in runs for folder in FOLDERS):
            cells = [_cell(runs[OURS, folder], runs[peer, folder], ours_itself=peer == OURS) for folder in FOLDERS]
            lines.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join(lines)


def _cell(ours: Sequence[dict[str, Any]], own: Sequence[dict[str, Any]], *, ours_itself: bool = False) -> str:
    score, few = (100 * sum(run["metrics"][name] for run in own) / len(own) for name in ("balanced", "few"))
    if ours_itself:
        return f"**{score:.1f}**, few {few:.1f}"
    _, low, high = (100 * value for value in difference(ours, own, "balanced"))
    return f"{score:.1f}, few {few:.1f} ({low:+.1f} to {high:+.1f})"


def main() -> None:
    """Rewrite the table of the page."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(fill(page, front_page(read_records(HERE / "results.jsonl"))), encoding="utf-8")


if __name__ == "__main__":
    main()
