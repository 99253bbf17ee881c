"""What an evaluation found: plain numbers that print, travel as JSON and show in a notebook."""

import html
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

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
    """The classes of one group: their number, how many of them have test images, and how they fare."""

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

    def to_json(self) -> str:
        """As JSON text that `from_json` reads back without loss."""
        return json.dumps({"format": FORMAT, **asdict(self)}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "Evaluation":
        """Read back what `to_json` wrote."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            found = data.get("format") if isinstance(data, dict) else type(data).__name__
            raise ValueError(f"text must be an evaluation of format {FORMAT}, got {found!r}; evaluate the run again")
        del data["format"]
        for name in ("top1", "top5", "balanced", "head_tail_gap", "ece"):
            data[name] = _estimate(data[name])
        data["classes"] = tuple(ClassResult(**c) for c in data["classes"])
        data["groups"] = {name: _group(group) for name, group in data["groups"].items()}
        data["reliability"] = _reliability(data["reliability"])
        data["confusions"] = tuple((t, p, n) for t, p, n in data["confusions"])
        data["bootstrap"] = Bootstrap(**data["bootstrap"])
        return cls(**data)

    def _repr_html_(self) -> str:
        shots = {f"{name} ({group.classes} classes)": group.accuracy for name, group in self.groups.items()}
        rows = {"balanced accuracy": self.balanced, **shots, "top-1": self.top1, "top-5": self.top5}
        rows |= {"head-tail gap": self.head_tail_gap, "ECE": self.ece}
        cells = "".join(f"<tr><td>{html.escape(name)}</td><td>{_cell(e)}</td></tr>" for name, e in rows.items())
        worst = html.escape(self.classes[self.worst_class].name)
        return (
            f"<table><caption>{self.images} test images, {self.measured} of {len(self.classes)} classes "
            f"measured; {html.escape(self.definition)}; worst class: {worst}</caption>{cells}</table>"
        )


def _cell(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    if estimate.low is None or estimate.high is None:
        return f"{100 * estimate.value:.1f} %"
    return f"{100 * estimate.value:.1f} % <small>{100 * estimate.low:.1f} to {100 * estimate.high:.1f}</small>"


def _estimate(data: dict[str, Any] | None) -> Estimate | None:
    return None if data is None else Estimate(**data)


def _reliability(data: dict[str, Any]) -> Reliability:
    return Reliability(**{name: tuple(values) for name, values in data.items()})


def _group(data: dict[str, Any]) -> GroupResult:
    parts = {"accuracy": _estimate(data["accuracy"]), "ece": _estimate(data["ece"])}
    return GroupResult(**{**data, **parts, "reliability": _reliability(data["reliability"])})
