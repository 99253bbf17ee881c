"""Choose the settings of a head on images that it was not trained on, where classes may have two images, or one.

By cross-validation: the images of a class are cut into folds in their order, so that each fold has its share of every
class, and images that were taken one after the other, which are almost the same, are mostly in one fold. A class with
one image is in the training part of every fold and is not scored. Or on validation images, where the user has some:
they may be of another shop or day than those of training, as the images to come will be.

The score is the balanced accuracy. The default stays unless another setting is better by more than one standard error
of the difference: with few images, the best of many is often luck.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail._in_parallel import in_parallel
from longtail.heads.base import HEADS

_RESAMPLES = 200
_ALWAYS_TRAINS, _LEFT_OUT = -1, -2


@dataclass(frozen=True)
class HeadChoice:
    """What was found.

    Args:
        settings: all arguments of the chosen head.
        logits: of each training image, (N, K), by a head that was not trained on it, NaN where no fold scored it; or of
            each validation image.
        balanced: the balanced accuracy of these.
        tried: value of the knob to balanced accuracy, in the order of trying.
        seconds: that it took.
    """

    settings: dict[str, Any]
    logits: NDArray[np.float32]
    balanced: float
    tried: dict[float | None, float]
    seconds: float


class _Scored(NamedTuple):
    settings: dict[str, Any]
    logits: NDArray[np.float32]
    correct: NDArray[np.bool_]
    balanced: float


def choose_head(
    features: Tensor,
    target: Tensor,
    class_counts: Sequence[int],
    *,
    name: str = "linear",
    settings: Mapping[str, Any] | None = None,
    folds: int = 5,
    seed: int = 0,
    seconds: float | None = None,
    most_images: int | None = None,
    validation: tuple[Tensor, Tensor] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> HeadChoice:
    """Score the head `name` for the values of its knob and its alternatives.

    Args:
        features: (N, D), standardised.
        target: (N,).
        class_counts: images of each class among all N.
        name: in `HEADS`.
        settings: of the head; a knob that they set is not chosen.
        folds: at least 2.
        seed: of the folds.
        seconds: nothing further is tried when it would end later; the default always is.
        most_images: of each class, so many are used at most.
        validation: features and labels to score on, instead of cross-validation.
        progress: is told how many heads are fitted, of how many at most.

    Example:
        >>> features = torch.eye(4).repeat(6, 1)[:, :3]
        >>> found = choose_head(features, torch.arange(24) % 4, [6, 6, 6, 6], folds=3)
        >>> found.balanced, found.logits.shape
        (1.0, (24, 4))
    """
    if folds < 2:
        raise ValueError(f"folds must be at least 2, got {folds}")
    kind, given = HEADS[name], dict(settings or {})
    labels = target.numpy() if validation is None else validation[1].numpy()
    fold = deal_folds(target.numpy(), folds, seed, most_images)
    rows = np.flatnonzero(fold >= 0) if validation is None else np.arange(len(labels))
    values: Sequence[float | None] = (None,) if kind.knob is None or kind.knob in given else kind.values
    alternatives = [other for other in kind.alternatives if not other.keys() & given.keys()]
    heads = (1 if validation else folds) * (len(values) + len(alternatives))
    start, fitted = time.monotonic(), list[_Scored]()

    def has_time() -> bool:
        elapsed = time.monotonic() - start
        return not fitted or seconds is None or elapsed * (len(fitted) + 1) / len(fitted) <= seconds

    def score(chosen: dict[str, Any]) -> _Scored:
        if progress:
            progress(heads * len(fitted) // (len(values) + len(alternatives)), heads)
        if validation is None:
            logits = _out_of_fold(features, target, fold, folds, name, chosen, len(class_counts))
        else:
            used = torch.from_numpy(np.flatnonzero(fold != _LEFT_OUT))
            logits = _logits(name, chosen, features[used], target[used], validation[0], len(class_counts))
        correct = logits[rows].argmax(1) == labels[rows]
        found = _Scored(chosen, logits, correct, balanced_accuracy(correct, labels[rows]))
        fitted.append(found)
        return found

    tried = dict[float | None, float]()
    for value in values:
        if not has_time():
            break
        tried[value] = score(given if value is None else given | {str(kind.knob): value}).balanced
    first = best = fitted[0]
    for each in fitted:
        if each.balanced > best.balanced and is_better(each.correct, first.correct, labels[rows], seed):
            best = each
    for other in alternatives:
        if has_time():
            each = score(best.settings | other)
            best = each if is_better(each.correct, best.correct, labels[rows], seed) else best
    if progress:
        progress(heads, heads)
    resolved = kind(class_counts, **best.settings).settings()
    return HeadChoice(resolved, best.logits, best.balanced, tried, time.monotonic() - start)


def deal_folds(
    labels: NDArray[np.int64], folds: int, seed: int = 0, most_images: int | None = None
) -> NDArray[np.int64]:
    """The fold of each image; −1 for one that always trains, −2 for one that is left out.

    Example:
        >>> deal_folds(np.zeros(8, int), 2, seed=1)
        array([0, 0, 0, 0, 1, 1, 1, 1])
    """
    generator = np.random.default_rng(seed)
    fold = np.full(len(labels), _LEFT_OUT)
    for k in np.unique(labels):
        members = np.flatnonzero(labels == k)
        if most_images is not None:
            members = np.sort(generator.permutation(members)[:most_images])
        fold[members] = (np.arange(len(members)) * folds // len(members) + generator.integers(folds)) % folds
        if len(members) == 1:
            fold[members] = _ALWAYS_TRAINS
    return fold


def _logits(
    name: str, settings: Mapping[str, Any], features: Tensor, target: Tensor, others: Tensor, num_classes: int
) -> NDArray[np.float32]:
    """The logits of other images by a head that is fitted on `features`."""
    counts = torch.bincount(target, minlength=num_classes).tolist()
    classifier = HEADS[name](counts, **settings).fit(features, target)
    with torch.no_grad():
        found: NDArray[np.float32] = classifier(others).numpy()
    return found


def _out_of_fold(
    features: Tensor,
    target: Tensor,
    fold: NDArray[np.int64],
    folds: int,
    name: str,
    settings: Mapping[str, Any],
    num_classes: int,
) -> NDArray[np.float32]:
    logits = np.full((len(target), num_classes), np.nan, np.float32)

    def predict(number: int) -> NDArray[np.float32]:
        return predict_fold(features, target, fold, number, name, settings, num_classes)

    for number, found in enumerate(in_parallel(predict, range(folds))):
        logits[fold == number] = found
    return logits


def predict_fold(
    features: Tensor,
    target: Tensor,
    fold: NDArray[np.int64],
    number: int,
    name: str,
    settings: Mapping[str, Any],
    num_classes: int,
) -> NDArray[np.float32]:
    """The logits of one fold by a head that was fitted on the others; arguments are those of `choose_head`."""
    inside = torch.from_numpy(np.flatnonzero((fold != number) & (fold != _LEFT_OUT)))
    outside = torch.from_numpy(np.flatnonzero(fold == number))
    if not len(outside):
        return np.empty((0, num_classes), np.float32)
    return _logits(name, settings, features[inside], target[inside], features[outside], num_classes)


def balanced_accuracy(correct: NDArray[np.bool_], labels: NDArray[np.int64]) -> float:
    """The mean over classes of the share that is correct; 0 if nothing was scored."""
    present = np.unique(labels)
    return float(np.mean([correct[labels == k].mean() for k in present])) if len(present) else 0.0


def is_better(new: NDArray[np.bool_], old: NDArray[np.bool_], labels: NDArray[np.int64], seed: int = 0) -> bool:
    """Whether the balanced accuracy rises by more than one standard error, by a bootstrap within classes.

    Without images it does not.
    """
    if not len(labels):
        return False
    change = new.astype(float) - old.astype(float)
    generator = np.random.default_rng(seed)
    means = []
    for k in np.unique(labels):
        members = change[labels == k]
        means.append(members[generator.integers(len(members), size=(_RESAMPLES, len(members)))].mean(1))
    drawn = np.mean(means, axis=0)
    return float(drawn.std()) < float(np.mean([change[labels == k].mean() for k in np.unique(labels)]))
