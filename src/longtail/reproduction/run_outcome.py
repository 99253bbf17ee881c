"""The results of a plan, from the folders of its runs: accuracies on the test images after the last epoch.

    top1 = share of the test images that are classified correctly
    many, medium, few = mean recall over the classes of the group

in percent, as the paper reports them; then mean and sample standard deviation over the seeds.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from longtail.evaluation.confusion_matrix import confusion_matrix, mean_over_support, recall_per_class
from longtail.reproduction.carry_out import read_failure
from longtail.reproduction.plan import Plan, PlannedEntry, PlannedRun
from longtail.reproduction.tables import Entry
from longtail.training.run_folder.read import open_run
from longtail.training.run_folder.write import RunFolder

State = Literal["finished", "failed", "not finished", "not started"]


@dataclass(frozen=True)
class RunOutcome:
    """One run: its state, and its accuracies if it is finished."""

    run: PlannedRun
    state: State
    accuracies: Mapping[str, float | None]
    exit_code: int = 0
    message: str = ""


@dataclass(frozen=True)
class Summary:
    """One number over the seeds.

    Args:
        values: by seed, in percent.
        paper: the paper's number.
    """

    values: Mapping[int, float]
    paper: float | None

    @property
    def mean(self) -> float | None:
        """None without a value."""
        return statistics.fmean(self.values.values()) if self.values else None

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation; None for fewer than two values."""
        return statistics.stdev(self.values.values()) if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper


@dataclass(frozen=True)
class EntryOutcome:
    """One row on one data set: its runs, its numbers by metric, and the data that it needs, if that is missing."""

    entry: Entry
    runs: tuple[RunOutcome, ...]
    summaries: Mapping[str, Summary]
    needs: str = ""

    @property
    def remark(self) -> str:
        """Why there is no number, or why seeds are missing from it."""
        failed = [run for run in self.runs if run.state == "failed"]
        if failed:
            return f"failed: {failed[0].message}"
        missing = {run.state for run in self.runs} - {"finished"}
        return (missing and self.needs) or ", ".join(sorted(missing))


def read_outcome(plan: Plan, needs: Mapping[str, str] | None = None) -> list[EntryOutcome]:
    """All entries of a plan.

    Args:
        plan: the runs.
        needs: a remark for each missing data set, by name.
    """
    return [_read_entry(planned, (needs or {}).get(planned.entry.data, "")) for planned in plan.entries]


def exit_code(outcomes: list[EntryOutcome]) -> int:
    """The exit code of the first run that failed, or 0."""
    return next((run.exit_code for found in outcomes for run in found.runs if run.state == "failed"), 0)


def accuracies(folder: Path) -> dict[str, float | None]:
    """The accuracies of a finished run in percent; None for a group without classes."""
    run = open_run(folder)
    predictions = run.predictions()
    confusion = confusion_matrix(predictions.target, predictions.logits.argmax(1), len(run.classes))
    recall = recall_per_class(confusion)
    found: dict[str, float | None] = {"top1": 100 * float(np.trace(confusion) / confusion.sum())}
    groups = run.class_counts.groups()
    for group in ("many", "medium", "few"):
        mean = mean_over_support(recall[groups[group]]) if group in groups else None
        found[group] = None if mean is None else 100 * mean
    return found


def _read_entry(planned: PlannedEntry, needs: str) -> EntryOutcome:
    runs = tuple(_read_run(run) for run in planned.runs)
    summaries = {}
    for metric, paper in planned.entry.paper.items():
        values = {found.run.seed: found.accuracies.get(metric) for found in runs}
        summaries[metric] = Summary({seed: value for seed, value in values.items() if value is not None}, paper)
    return EntryOutcome(planned.entry, runs, summaries, needs)


def _read_run(run: PlannedRun) -> RunOutcome:
    if RunFolder(run.folder).is_finished:
        return RunOutcome(run, "finished", accuracies(run.folder))
    failure = read_failure(run.folder)
    if failure is not None:
        return RunOutcome(run, "failed", {}, failure.exit_code, failure.message)
    return RunOutcome(run, "not finished" if (run.folder / "config.yaml").exists() else "not started", {})
