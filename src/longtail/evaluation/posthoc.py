"""Change a trained model's predictions without retraining: logit adjustment and temperature scaling.

Both act on saved logits z, and each has one parameter:

    logit adjustment     z'_k = z_k − τ log π_k         (Menon et al., ICLR 2021, eq. 9)
    temperature scaling  z'_k = z_k / T                  (Guo et al., ICML 2017, section 4.2)

with π_k the training prior of class k. τ = 1 turns a model of the training distribution into one of a
balanced distribution; T changes no prediction, only its confidence.

The parameter is chosen on validation images and applied to test images. The functions that choose it take both splits
but no test labels, and return a `PostHocChoice`, which tells the report what was chosen, on what, and by which rule.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from longtail._errors import counted
from longtail.class_counts import ClassCounts
from longtail.evaluation._arrays import Floats, Ints, as_logits, as_target, softmax
from longtail.evaluation.confusion_matrix import balanced_accuracy, confusion_matrix

Criterion = Literal["balanced", "top1"]
TAUS = tuple(round(0.1 * step, 1) for step in range(31))
_HOTTEST, _COLDEST = 1e-3, 1e3  # bounds of 1/T: a validation set without an error would take T to 0


@dataclass(frozen=True)
class PostHocChoice:
    """A parameter, and how it was chosen.

    `tried` pairs each value with its score on the validation images, for a sweep; it is empty where the
    optimum was computed. `images` is the number of validation images.
    """

    method: str
    parameter: str
    value: float
    criterion: str
    images: int
    tried: tuple[tuple[float, float], ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.method}: {self.parameter} = {self.value:.4g}, chosen on {counted(self.images, 'validation image')} "
            f"by {self.criterion}"
        )


def adjust_logits(logits: npt.ArrayLike, class_counts: Iterable[int], tau: float = 1.0) -> Floats:
    """Subtract τ log π: with τ = 1, predict as if all classes had been equally frequent in training.

    Example:
        >>> adjust_logits([[0.0, 0.0]], class_counts=[100, 100]).round(3).tolist()
        [[0.693, 0.693]]
    """
    values = as_logits(logits)
    counts = ClassCounts(class_counts)
    if len(counts) != values.shape[1]:
        raise ValueError(f"class_counts must have one number for each of {values.shape[1]} classes, got {len(counts)}")
    if min(counts) == 0:
        raise ValueError(
            f"class_counts must be at least 1 for logit adjustment, but class {list(counts).index(0)} has 0, "
            "and the log of its prior does not exist; leave the class out"
        )
    return values - (tau * np.log(counts.priors)).astype(values.dtype)


def choose_tau(
    val_logits: npt.ArrayLike,
    val_target: npt.ArrayLike,
    test_logits: npt.ArrayLike,
    class_counts: Iterable[int],
    *,
    taus: Sequence[float] = TAUS,
    criterion: Criterion = "balanced",
) -> tuple[Floats, PostHocChoice]:
    """Choose τ on the validation images; return the adjusted test logits and the choice.

    Of several best taus, the one nearest to 0 (the smallest change) is taken.
    """
    if not taus:
        raise ValueError("taus must hold at least one value, got none")
    logits = as_logits(val_logits, name="val_logits")
    target = as_target(val_target, num_images=len(logits), num_classes=logits.shape[1], name="val_target")
    counts = ClassCounts(class_counts)
    scores = tuple((tau, _score(adjust_logits(logits, counts, tau), target, criterion)) for tau in taus)
    best, _ = max(scores, key=lambda pair: (pair[1], -abs(pair[0])))
    name = {"balanced": "balanced accuracy", "top1": "top-1 accuracy"}[criterion]
    choice = PostHocChoice("logit adjustment", "tau", best, name, len(logits), scores)
    return adjust_logits(as_logits(test_logits, name="test_logits"), counts, best), choice


def fit_temperature(
    logits: npt.ArrayLike,
    target: npt.ArrayLike,
    *,
    by_class: bool = False,
    prior: npt.ArrayLike | None = None,
    shift: npt.ArrayLike = 0.0,
) -> float:
    """The T that minimises the negative log-likelihood of `target` under softmax(z / T + shift).

    With `by_class` each class weighs the same, however many images it has; with `prior`, a class k weighs prior_k.

    In b = 1/T it is convex, with the derivative mean(Σ_k p_k z_k − z_y), whose zero is found by bisection. Where all
    images are right the optimum is T = 0, and the bound 0.001 is returned.
    """
    values = as_logits(logits)
    labels = as_target(target, num_images=len(values), num_classes=values.shape[1])
    values = values - values.max(axis=1, keepdims=True)
    own = np.take_along_axis(values, labels[:, None], axis=1)[:, 0]
    weights = 1 / np.bincount(labels)[labels] if by_class or prior is not None else None
    if weights is not None and prior is not None:
        weights = weights * np.maximum(np.asarray(prior, dtype=np.float64), 1e-12)[labels]

    def slope(inverse: float) -> float:
        return float(
            np.average((softmax(values * inverse + np.asarray(shift)) * values).sum(axis=1) - own, weights=weights)
        )

    low, high = np.log(_HOTTEST), np.log(_COLDEST)
    if slope(float(np.exp(high))) <= 0:
        return 1 / _COLDEST
    while high - low > 1e-7:
        middle = (low + high) / 2
        low, high = (low, middle) if slope(float(np.exp(middle))) > 0 else (middle, high)
    return float(np.exp(-(low + high) / 2))


def scale_temperature(
    val_logits: npt.ArrayLike, val_target: npt.ArrayLike, test_logits: npt.ArrayLike
) -> tuple[Floats, PostHocChoice]:
    """Fit T on the validation images; return the scaled test logits and the choice."""
    values = as_logits(val_logits, name="val_logits")
    temperature = fit_temperature(values, val_target)
    choice = PostHocChoice("temperature scaling", "T", temperature, "negative log-likelihood", len(values))
    scaled: Floats = as_logits(test_logits, name="test_logits") / np.float32(temperature)
    return scaled, choice


def _score(logits: Floats, target: Ints, criterion: Criterion) -> float:
    confusion = confusion_matrix(target, logits.argmax(axis=1), logits.shape[1])
    if criterion == "top1":
        return float(np.trace(confusion) / confusion.sum())
    return balanced_accuracy(confusion) or 0.0
