"""The numbers of an evaluation, which can be printed, written as JSON and shown in a notebook."""

import html
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from longtail._errors import counted
from longtail.class_counts import GROUPS, Group
from longtail.evaluation._arrays import Ints
from longtail.evaluation.bootstrap import Estimate, Resampling
from longtail.evaluation.calibration import Reliability

FORMAT = 1


@dataclass(frozen=True)
class ClassResult:
    """One class. `train` and `support` count its training and test images, `predicted` its predictions.

    None stands where there is nothing to measure: no recall without test images, no precision without
    predictions. `low` and `high` are Wilson's 95 % interval of the recall. `confused_with` is the class that
    most of its errors go to.
    """

    name: str
    group: Group
    train: int
    support: int
    predicted: int
    recall: float | None
    low: float | None
    high: float | None
    precision: float | None
    calibration_error: float | None
    confused_with: int | None


@dataclass(frozen=True)
class GroupResult:
    """One group: its number of classes, how many of them have test images, and their accuracy and calibration."""

    classes: int
    measured: int
    images: int
    accuracy: Estimate | None
    ece: Estimate | None
    classwise_ece: float | None
    reliability: Reliability


@dataclass(frozen=True)
class Bootstrap:
    """How the intervals were drawn."""

    replicates: int
    level: float
    resampling: Resampling
    seed: int


@dataclass(frozen=True)
class Evaluation:
    """Every number of one model on one test set; made by `evaluate`.

    `groups` has no entry for a group without classes. `confusions` lists the cells of the confusion matrix
    that are not 0 as (true class, predicted class, images).
    """

    classes: tuple[ClassResult, ...]
    groups: Mapping[Group, GroupResult]
    many_above: int
    few_below: int
    images: int
    top1: Estimate
    top5: Estimate | None
    balanced: Estimate
    head_tail_gap: Estimate | None
    ece: Estimate
    classwise_ece: float
    reliability: Reliability
    worst_class: int
    confusions: tuple[tuple[int, int, int], ...]
    bootstrap: Bootstrap

    @property
    def definition(self) -> str:
        """What many, medium and few mean here, in training images."""
        return (
            f"many: more than {self.many_above}, medium: {self.few_below} to {self.many_above}, "
            f"few: fewer than {self.few_below} training images"
        )

    @property
    def measured(self) -> int:
        """The number of classes with at least one test image."""
        return sum(c.support > 0 for c in self.classes)

    @property
    def metrics(self) -> dict[str, float | None]:
        """The summary numbers by name; None where a group is empty or has no test image."""
        estimates: dict[str, Estimate | None] = {
            "top1": self.top1,
            "top5": self.top5,
            "balanced": self.balanced,
        }
        for group in GROUPS:
            estimates[group] = self.groups[group].accuracy if group in self.groups else None
        estimates |= {"head_tail_gap": self.head_tail_gap, "ece": self.ece}
        values = {name: None if e is None else e.value for name, e in estimates.items()}
        return values | {"classwise_ece": self.classwise_ece}

    @property
    def confusion_matrix(self) -> Ints:
        """The full matrix (K, K): rows are true classes, columns predicted ones."""
        matrix = np.zeros((len(self.classes), len(self.classes)), dtype=np.int64)
        for true, predicted, images in self.confusions:
            matrix[true, predicted] = images
        return matrix

    def __repr__(self) -> str:
        shown = f"balanced {self.balanced.value:.1%}, top1 {self.top1.value:.1%}"
        return f"<Evaluation: {shown} on {counted(self.images, 'test image')}>"

    def to_json(self) -> str:
        """All of it as strict JSON text."""
        return json.dumps({"format": FORMAT, **asdict(self)}, allow_nan=False)

    def _repr_html_(self) -> str:
        shots = {f"{name} ({counted(group.classes, 'class')})": group.accuracy for name, group in self.groups.items()}
        rows = {"balanced accuracy": self.balanced, **shots, "top-1": self.top1, "top-5": self.top5}
        rows |= {"head-tail gap": self.head_tail_gap, "ECE": self.ece}
        cells = "".join(f"<tr><td>{html.escape(name)}</td><td>{_cell(e)}</td></tr>" for name, e in rows.items())
        worst = html.escape(self.classes[self.worst_class].name)
        return (
            f"<table><caption>{counted(self.images, 'test image')}, {self.measured:,} of {len(self.classes):,} "
            f"classes measured; {html.escape(self.definition)}; worst class: {worst}</caption>{cells}</table>"
        )


def _cell(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    if estimate.low is None or estimate.high is None:
        return f"{100 * estimate.value:.1f} %"
    return f"{100 * estimate.value:.1f} % <small>{100 * estimate.low:.1f} to {100 * estimate.high:.1f}</small>"
