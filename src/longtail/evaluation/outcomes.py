"""What happened to each test image, and every summary number as a function of any resample of the images.

A metric, its bootstrap interval and the paired difference of two runs are the same arithmetic on different
rows: all rows once, rows drawn with replacement, and the same drawn rows for both runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from longtail.class_counts import GROUPS, Group
from longtail.evaluation._arrays import Bools, Floats, Ints, softmax
from longtail.evaluation.calibration import bin_index
from longtail.evaluation.confusion_matrix import in_top_k


@dataclass(frozen=True)
class Outcomes:
    """One row per image. `group` is the position in GROUPS of the true class's group.

    `in_top5` is None with five classes or fewer, where it would always be true.
    """

    num_classes: int
    bins: int
    target: Ints
    prediction: Ints
    correct: Bools
    in_top5: Bools | None
    confidence: Floats
    group: Ints
    class_group: Ints

    def __len__(self) -> int:
        return len(self.target)


def outcomes(logits: Floats, target: Ints, groups: Mapping[Group, Sequence[int]], *, bins: int = 15) -> Outcomes:
    """Reduce logits (N, K) to what the summary numbers need of each image."""
    num_classes = logits.shape[1]
    class_group = np.zeros(num_classes, dtype=np.int64)
    for group, members in groups.items():
        class_group[list(members)] = GROUPS.index(group)
    prediction = logits.argmax(axis=1)
    probs = softmax(logits)
    return Outcomes(
        num_classes=num_classes,
        bins=bins,
        target=target,
        prediction=prediction,
        correct=prediction == target,
        in_top5=in_top_k(logits, target, 5) if num_classes > 5 else None,
        confidence=np.take_along_axis(probs, prediction[:, None], axis=1)[:, 0].astype(np.float64),
        group=class_group[target],
        class_group=class_group,
    )


def statistics(images: Outcomes, rows: Ints) -> dict[str, npt.NDArray[np.float64]]:
    """Each summary number for each of R resamples `rows` (R, n) of the images; NaN where there is nothing to measure.

    The keys are top1, top5 (absent with five classes or fewer), balanced, ece, and for each group
    `many`, `ece_many` and so on, and head_tail_gap: the first measured group's accuracy minus the last's.
    """
    resamples, drawn = rows.shape
    offset = np.arange(resamples)[:, None]

    # One count of (class, right or wrong) gives every recall.
    cell = (2 * images.target + images.correct)[rows] + offset * (2 * images.num_classes)
    cells = np.bincount(cell.ravel(), minlength=resamples * 2 * images.num_classes)
    cells = cells.reshape(resamples, images.num_classes, 2)
    support = cells.sum(axis=2)
    recall = np.where(support > 0, cells[:, :, 1] / np.maximum(support, 1), np.nan)

    # One sum by (group, bin) of right-or-wrong minus confidence gives every calibration error.
    size = len(GROUPS) * images.bins
    slot = images.group * images.bins + bin_index(images.confidence, images.bins)
    excess = (images.correct - images.confidence)[rows]
    gap = np.bincount((slot[rows] + offset * size).ravel(), weights=excess.ravel(), minlength=resamples * size)
    gap = gap.reshape(resamples, len(GROUPS), images.bins)

    result = {
        "top1": cells[:, :, 1].sum(axis=1) / drawn,
        "balanced": _mean(recall),
        "ece": np.abs(gap.sum(axis=1)).sum(axis=1) / drawn,
    }
    if images.in_top5 is not None:
        result["top5"] = images.in_top5[rows].mean(axis=1)
    for index, group in enumerate(GROUPS):
        members = images.class_group == index
        in_group = support[:, members].sum(axis=1)
        result[group] = _mean(recall[:, members])
        result[f"ece_{group}"] = np.where(
            in_group > 0, np.abs(gap[:, index]).sum(axis=1) / np.maximum(in_group, 1), np.nan
        )
    result["head_tail_gap"] = _gap(images, result)
    return result


def _gap(images: Outcomes, values: Mapping[str, npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    measured = [GROUPS[index] for index in np.unique(images.group)]
    if len(measured) < 2:
        return np.full_like(values["top1"], np.nan)
    return values[measured[0]] - values[measured[-1]]


def _mean(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The mean of each row's values that are not NaN, NaN for a row without any (and no warning)."""
    present = ~np.isnan(values)
    number = present.sum(axis=1)
    total = np.where(present, values, 0.0).sum(axis=1)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)
