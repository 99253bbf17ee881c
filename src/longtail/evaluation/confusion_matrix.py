"""Accuracies that show the tail: recall of each class, and means over classes instead of images.

With C the confusion matrix (rows: true class, columns: predicted class),

    recall_k    = C_kk / Σ_j C_kj        precision_k = C_kk / Σ_i C_ik
    top-1       = Σ_k C_kk / Σ C         balanced    = mean over k of recall_k
    many, medium, few = mean of recall_k over the classes of the group

Every mean runs over the classes *with support*, that is with at least one test image: a class without any
has no recall (NaN); counting it as 0, as some libraries do, would blame the model for the test set.
A class that is never predicted has no precision (NaN).

Reference for the groups: Liu et al., "Large-Scale Long-Tailed Recognition in an Open World", CVPR 2019.
"""

import numpy as np

from longtail.evaluation._arrays import Bools, Floats, Ints

# Weighted sums of many images are not exact.
_ROUNDING = 1e-9


def confusion_matrix(target: Ints, prediction: Ints, num_classes: int) -> Ints:
    """Count images by true class (row) and predicted class (column)."""
    cells = np.bincount(target * num_classes + prediction, minlength=num_classes**2)
    return cells.reshape(num_classes, num_classes)


def recall_per_class(confusion: Ints) -> Floats:
    """The share of each class's images that are predicted as that class; NaN without images."""
    return _ratio(np.diagonal(confusion), confusion.sum(axis=1))


def precision_per_class(confusion: Ints) -> Floats:
    """The share of the predictions of each class that are right; NaN for a class never predicted."""
    return _ratio(np.diagonal(confusion), confusion.sum(axis=0))


def mean_over_support(per_class: Floats) -> float | None:
    """The mean of the values that are not NaN, or None if all are."""
    present = per_class[~np.isnan(per_class)]
    return float(present.mean()) if present.size else None


def balanced_accuracy(confusion: Ints) -> float | None:
    """The mean recall over the classes with support."""
    return mean_over_support(recall_per_class(confusion))


def in_top_k(logits: Floats, target: Ints, k: int) -> Bools:
    """Whether each image's true class is among the `k` largest logits.

    Of equal logits the lower class index ranks first, so that k = 1 agrees with `argmax`.
    """
    own = np.take_along_axis(logits, target[:, None], axis=1)
    earlier = np.arange(logits.shape[1]) < target[:, None]
    rank = (logits > own).sum(axis=1) + ((logits == own) & earlier).sum(axis=1)
    return np.asarray(rank < k)


def wilson_interval(successes: Ints | Floats, trials: Ints | Floats, *, z: float = 1.959964) -> tuple[Floats, Floats]:
    """Wilson's interval for a proportion (95 % unless `z` says otherwise); NaN without trials.

    Used for single classes: they often have so few images that the bootstrap fails (0 right out of 5 has no width).
    """
    share = _ratio(successes, trials)
    n = np.where(trials > 0, trials, 1).astype(np.float64)
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)


def widen_interval(value: float, low: float, high: float, trials: float) -> tuple[float, float]:
    """Wilson's interval where all of `trials` are right or all are wrong, of which no resample tells; else as it is."""
    if high - low > _ROUNDING or abs(value - round(value)) > _ROUNDING or trials <= 0:
        return low, high
    lower, upper = wilson_interval(np.array([round(value) * trials]), np.array([trials]))
    return float(lower[0]), float(upper[0])


def _ratio(part: Ints | Floats, whole: Ints | Floats) -> Floats:
    ratio = np.full(len(whole), np.nan)
    np.divide(part, whole, out=ratio, where=whole > 0)
    return ratio
