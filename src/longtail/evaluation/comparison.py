"""Whether two runs differ on the same test images, or only seem to.

The difference of two metrics is resampled in pairs: each resample draws the same images for both runs, so
that what is hard for both cancels (Efron and Tibshirani, 1993, chapter 8). The intervals of all metrics hold
jointly. Where an interval includes 0 the verdict is "no difference shown", which is not "no difference".

Single classes are compared by the exact McNemar test, corrected for their number (`mcnemar.py`).

Both answer for this test set and these two trained models. Another seed may move the numbers by more than the
interval: to compare methods, compare several seeds of each.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from longtail.class_counts import GROUPS, ClassCounts
from longtail.evaluation._arrays import Ints, as_class_names, as_logits, as_target
from longtail.evaluation.bootstrap import Resampling, choose_resampling, resample
from longtail.evaluation.evaluate import evaluate
from longtail.evaluation.mcnemar import holm, joint_half_widths, mcnemar
from longtail.evaluation.outcomes import Outcomes, outcomes, statistics
from longtail.evaluation.result import Bootstrap, Evaluation

Verdict = Literal["better", "worse", "no difference shown"]
METRICS = ("balanced", *GROUPS, "top1", "top5", "ece")
LOWER_IS_BETTER = frozenset({"ece"})


@dataclass(frozen=True)
class Difference:
    """A run's metric minus the baseline's, with the paired interval."""

    run: str
    metric: str
    value: float
    low: float | None
    high: float | None

    @property
    def verdict(self) -> Verdict:
        """`better` or `worse` than the baseline where the interval excludes 0."""
        if self.low is None or self.high is None or self.low <= 0 <= self.high:
            return "no difference shown"
        return "better" if (self.value > 0) != (self.metric in LOWER_IS_BETTER) else "worse"

    def __str__(self) -> str:
        way = "higher" if self.value > 0 else "lower"
        return f"{label(self.metric)} is {100 * abs(self.value):.1f} points {way}"


@dataclass(frozen=True)
class ClassDifference:
    """One class in two runs: recall minus the baseline's, and the images that only one of the runs gets right.

    `p_value` is McNemar's, corrected for all classes; `differs` is p < 0.05.
    """

    run: str
    class_index: int
    value: float
    gained: int
    lost: int
    p_value: float

    @property
    def differs(self) -> bool:
        """Whether the difference stands after the correction."""
        return self.p_value < 0.05


@dataclass(frozen=True)
class Comparison:
    """Two or more runs on the same images; the first is the baseline of every difference.

    `settings` has those of each run, by its name, as text.
    """

    evaluations: Mapping[str, Evaluation]
    differences: tuple[Difference, ...]
    class_differences: tuple[ClassDifference, ...]
    bootstrap: Bootstrap
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def baseline(self) -> str:
        """The name of the run that the others are compared with."""
        return next(iter(self.evaluations))

    def verdict(self, run: str) -> str:
        """One sentence on `run` against the baseline: what differs and by how much, or that nothing does."""
        shown = [str(d) for d in self.shown(run)]
        if not shown:
            return f"No difference shown between {run} and {self.baseline}."
        return f"{run} against {self.baseline}: {'; '.join(shown)}."

    def shown(self, run: str) -> list[Difference]:
        """The differences of `run` from the baseline whose intervals exclude 0."""
        return [d for d in self.differences if d.run == run and d.verdict != "no difference shown"]

    def setting_differences(self) -> dict[str, tuple[str, ...]]:
        """The settings that are not the same in all runs, with their values in the order of the runs; "–" for none.

        Example:
            >>> settings = {"a": {"lr": "1"}, "b": {}}
            >>> found = compare_runs({"a": [[1.0, 0]], "b": [[0, 1.0]]}, [0], [2, 1], settings=settings)
            >>> found.setting_differences()
            {'lr': ('1', '–')}
        """
        keys = dict.fromkeys(key for one in self.settings.values() for key in one)
        rows = {key: tuple(self.settings.get(name, {}).get(key, "–") for name in self.evaluations) for key in keys}
        return {key: row for key, row in rows.items() if len(set(row)) > 1}

    def __repr__(self) -> str:
        others = [name for name in self.evaluations if name != self.baseline]
        return f"<Comparison: {' '.join(self.verdict(name) for name in others)}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(d.run)}</td><td>{label(d.metric)}</td><td>{100 * d.value:+.1f}</td>"
            f"<td>{d.verdict}</td></tr>"
            for d in self.differences
        )
        return f"<table><caption>difference from {html.escape(self.baseline)} in points</caption>{rows}</table>"


def compare_runs(
    runs: Mapping[str, npt.ArrayLike],
    target: npt.ArrayLike,
    class_counts: Iterable[int],
    classes: Sequence[str] | None = None,
    *,
    many: int = 100,
    few: int = 20,
    bins: int = 15,
    replicates: int = 1000,
    level: float = 0.95,
    resampling: Resampling | None = None,
    seed: int = 0,
    settings: Mapping[str, Mapping[str, str]] | None = None,
) -> Comparison:
    """Compare the logits (N, K) of two or more runs on the same images; see `evaluate` for the arguments.

    `settings` are those of each run, by its name, of which the differences are shown.
    """
    if len(runs) < 2:
        raise ValueError(f"runs must hold at least two runs to compare, got {len(runs)}")
    logits = {name: as_logits(values, name=f"logits of {name}") for name, values in runs.items()}
    shapes = {values.shape for values in logits.values()}
    if len(shapes) > 1:
        raise ValueError(
            "runs must hold logits of the same images and classes, got the shapes "
            f"{', '.join(f'{name}: {values.shape}' for name, values in logits.items())}"
        )
    ((num_images, num_classes),) = shapes
    labels = as_target(target, num_images=num_images, num_classes=num_classes)
    names = as_class_names(classes, num_classes=num_classes)
    counts = ClassCounts(class_counts)
    how = Bootstrap(replicates, level, resampling or choose_resampling(labels), seed)
    evaluations = {
        name: evaluate(
            values,
            labels,
            counts,
            names,
            many=many,
            few=few,
            bins=bins,
            replicates=replicates,
            level=level,
            resampling=how.resampling,
            seed=seed,
        )
        for name, values in logits.items()
    }
    groups = counts.groups(many=many, few=few)
    images = {name: outcomes(values, labels, groups, bins=bins) for name, values in logits.items()}
    baseline, *others = images
    return Comparison(
        evaluations=evaluations,
        differences=_differences(images, labels, how),
        class_differences=tuple(d for name in others for d in _by_class(name, images[baseline], images[name])),
        bootstrap=how,
        settings=dict(settings or {}),
    )


def label(metric: str) -> str:
    """The usual name of a metric."""
    names = {
        "balanced": "balanced accuracy",
        "top1": "top-1 accuracy",
        "top5": "top-5 accuracy",
        "ece": "ECE",
    }
    return names.get(metric, f"{metric}-shot accuracy")


def _differences(images: Mapping[str, Outcomes], target: Ints, how: Bootstrap) -> tuple[Difference, ...]:
    everything = np.arange(len(target))[None]
    point = {name: statistics(outcome, everything) for name, outcome in images.items()}
    drawn: dict[str, list[dict[str, npt.NDArray[np.float64]]]] = {name: [] for name in images}
    for rows in resample(target, replicates=how.replicates, resampling=how.resampling, seed=how.seed):
        for name, outcome in images.items():
            drawn[name].append(statistics(outcome, rows))
    baseline, *others = images
    metrics = [m for m in METRICS if m in point[baseline] and not np.isnan(point[baseline][m][0])]
    result = []
    for name in others:
        pairs = list(zip(drawn[name], drawn[baseline], strict=True))
        values = np.stack([np.concatenate([own[m] - other[m] for own, other in pairs]) for m in metrics])
        for metric, half in zip(metrics, joint_half_widths(values, level=how.level), strict=True):
            value = float(point[name][metric][0] - point[baseline][metric][0])
            low, high = (value - half, value + half) if len(target) > 1 else (None, None)
            result.append(Difference(name, metric, value, low, high))
    return tuple(result)


def _by_class(run: str, baseline: Outcomes, other: Outcomes) -> list[ClassDifference]:
    number = baseline.num_classes
    support = np.bincount(baseline.target, minlength=number)
    gained = np.bincount(baseline.target[other.correct & ~baseline.correct], minlength=number)
    lost = np.bincount(baseline.target[baseline.correct & ~other.correct], minlength=number)
    measured = [int(k) for k in np.flatnonzero(support)]
    corrected = holm([mcnemar(int(gained[k]), int(lost[k])) for k in measured])
    return [
        ClassDifference(run, k, float((gained[k] - lost[k]) / support[k]), int(gained[k]), int(lost[k]), p)
        for k, p in zip(measured, corrected, strict=True)
    ]
