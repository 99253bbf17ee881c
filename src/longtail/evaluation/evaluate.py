"""From logits and labels to every number: the one function that `longtail evaluate` and the report call."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from longtail.class_counts import GROUPS, ClassCounts, Group
from longtail.evaluation._arrays import Floats, Ints, as_class_names, as_logits, as_target, softmax
from longtail.evaluation.bootstrap import Estimate, Resampling, bootstrap_interval, choose_resampling, resample
from longtail.evaluation.calibration import calibration_error_per_class, reliability
from longtail.evaluation.confusion_matrix import (
    confusion_matrix,
    mean_over_support,
    precision_per_class,
    recall_per_class,
    widen_interval,
    wilson_interval,
)
from longtail.evaluation.outcomes import Outcomes, outcomes, statistics
from longtail.evaluation.result import Bootstrap, ClassResult, Evaluation, GroupResult


def evaluate(
    logits: npt.ArrayLike,
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
) -> Evaluation:
    """Measure a model from its logits on the test images, each image once.

    Args:
        logits: (N, K), an array or a tensor, before the softmax.
        target: (N,) class indices.
        class_counts: training images of each class, which decide many, medium and few.
        classes: names; defaults to the indices.
        many: a class with more training images than this is many-shot.
        few: a class with fewer training images than this is few-shot.
        bins: bins of equal width for the calibration errors.
        replicates: resamples for the intervals.
        level: share of the resamples inside an interval.
        resampling: see `longtail.evaluation.bootstrap`; by default, chosen by the test set.
        seed: seed of the resampling.

    Example:
        >>> found = evaluate([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1], class_counts=[500, 5])
        >>> found.metrics["balanced"], found.metrics["few"], found.metrics["medium"]
        (0.75, 0.5, None)
    """
    logits = as_logits(logits)
    num_images, num_classes = logits.shape
    target = as_target(target, num_images=num_images, num_classes=num_classes)
    names = as_class_names(classes, num_classes=num_classes)
    counts = ClassCounts(class_counts)
    if len(counts) != num_classes:
        raise ValueError(f"class_counts must have one number for each of {num_classes} classes, got {len(counts)}")
    groups = counts.groups(many=many, few=few)

    images = outcomes(logits, target, groups, bins=bins)
    how = Bootstrap(replicates, level, resampling or choose_resampling(target), seed)
    estimates = _estimates(images, how)
    class_error = calibration_error_per_class(softmax(logits), target, bins=bins)
    confusion = confusion_matrix(target, images.prediction, num_classes)
    recall = recall_per_class(confusion)

    def group_result(group: Group) -> GroupResult:
        members = groups[group]
        mine = images.group == GROUPS.index(group)
        return GroupResult(
            classes=len(members),
            measured=int((~np.isnan(recall[members])).sum()),
            images=int(mine.sum()),
            accuracy=estimates[group],
            ece=estimates[f"ece_{group}"],
            classwise_ece=mean_over_support(class_error[members]),
            reliability=reliability(images.confidence[mine], images.correct[mine].astype(float), bins=bins),
        )

    true, predicted = np.nonzero(confusion)
    return Evaluation(
        classes=_class_results(names, counts, groups, confusion, class_error),
        groups={group: group_result(group) for group in groups},
        many_above=many,
        few_below=few,
        images=num_images,
        top1=_present(estimates["top1"]),
        top5=estimates.get("top5"),
        balanced=_present(estimates["balanced"]),
        head_tail_gap=estimates["head_tail_gap"],
        ece=_present(estimates["ece"]),
        classwise_ece=float(np.nanmean(class_error)),
        reliability=reliability(images.confidence, images.correct.astype(float), bins=bins),
        worst_class=_worst(recall, counts),
        confusions=tuple(
            (int(t), int(p), int(n)) for t, p, n in zip(true, predicted, confusion[true, predicted], strict=True)
        ),
        bootstrap=how,
    )


def _estimates(images: Outcomes, how: Bootstrap) -> dict[str, Estimate | None]:
    point = statistics(images, np.arange(len(images))[None])
    drawn = [
        statistics(images, rows)
        for rows in resample(images.target, replicates=how.replicates, resampling=how.resampling, seed=how.seed)
    ]
    trials = _trials(images)
    result: dict[str, Estimate | None] = {}
    for name, value in point.items():
        if np.isnan(value[0]):
            result[name] = None
            continue
        values = np.concatenate([part[name] for part in drawn])
        low, high = bootstrap_interval(float(value[0]), values, level=how.level) if len(images) > 1 else (None, None)
        smallest = -1.0 if name == "head_tail_gap" else 0.0
        if low is not None and high is not None:
            low, high = max(low, smallest), min(high, 1.0)
            if name in trials:
                low, high = widen_interval(float(value[0]), low, high, trials[name])
        result[name] = Estimate(float(value[0]), low, high)
    gap, measured = result["head_tail_gap"], [found for name in GROUPS if (found := result[name]) is not None]
    if gap is not None and gap.low is not None and gap.low == gap.high:
        result["head_tail_gap"] = _gap_of(measured[0], measured[-1])
    return result


def _trials(images: Outcomes) -> dict[str, float]:
    """The images that each share counts as: for a mean of recalls, those that give it the same variance."""
    support = np.bincount(images.target, minlength=images.num_classes).astype(np.float64)
    trials = {"top1": float(len(images)), "top5": float(len(images))}
    for name, members in (("balanced", support > 0), *((g, images.class_group == i) for i, g in enumerate(GROUPS))):
        own = support[members & (support > 0)]
        trials[name] = float(len(own) ** 2 / (1 / own).sum()) if len(own) else 0.0
    return trials


def _gap_of(head: Estimate, tail: Estimate) -> Estimate:
    """The difference of two shares whose resamples all agree, with Newcombe's interval (1998, method 10)."""
    value = head.value - tail.value
    ends = (head.low, head.high, tail.low, tail.high)
    if any(end is None for end in ends):
        return Estimate(value)
    head_low, head_high, tail_low, tail_high = (end for end in ends if end is not None)
    below = np.hypot(head.value - head_low, tail_high - tail.value)
    above = np.hypot(head_high - head.value, tail.value - tail_low)
    return Estimate(value, max(float(value - below), -1.0), min(float(value + above), 1.0))


def _class_results(
    names: Sequence[str],
    counts: ClassCounts,
    groups: dict[Group, list[int]],
    confusion: Ints,
    class_error: Floats,
) -> tuple[ClassResult, ...]:
    group_of = {k: group for group, members in groups.items() for k in members}
    support, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    recall, precision = recall_per_class(confusion), precision_per_class(confusion)
    low, high = wilson_interval(np.diagonal(confusion), support)
    errors = confusion.copy()
    np.fill_diagonal(errors, 0)
    return tuple(
        ClassResult(
            name=names[k],
            group=group_of[k],
            train=counts[k],
            support=int(support[k]),
            predicted=int(predicted[k]),
            recall=_or_none(recall[k]),
            low=_or_none(low[k]),
            high=_or_none(high[k]),
            precision=_or_none(precision[k]),
            calibration_error=_or_none(class_error[k]),
            confused_with=int(errors[k].argmax()) if errors[k].any() else None,
        )
        for k in range(len(names))
    )


def _worst(recall: Floats, counts: ClassCounts) -> int:
    """The class of lowest recall; of several, the one with the most training images, which has the least excuse."""
    return min(np.flatnonzero(~np.isnan(recall)), key=lambda k: (recall[k], -counts[int(k)], k)).item()


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _present(estimate: Estimate | None) -> Estimate:
    if estimate is None:
        raise AssertionError("a test set with an image has this number")
    return estimate
