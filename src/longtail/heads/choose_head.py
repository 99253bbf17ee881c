"""Choose the strength of a head by cross-validation, where classes may have two images, or one.

The images of a class are dealt to the folds in turn, so that each fold has its share of every class. A class with one
image is in the training part of every fold and is not scored. The score is the balanced accuracy of the predictions of
images that the head was not trained on. The default strength stays unless another is better by more than one standard
error of the difference: with few images, the best of many is often luck.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail._in_parallel import in_parallel
from longtail.heads.base import HEADS

_RESAMPLES = 200


@dataclass(frozen=True)
class HeadChoice:
    """What cross-validation found.

    Args:
        settings: all arguments of the chosen head.
        logits: (N, K), each image's by a head that was not trained on it; NaN where no fold scored it.
        balanced: the balanced accuracy of these.
        tried: value of the knob to balanced accuracy, in the order of trying.
        seconds: that it took.
    """

    settings: dict[str, Any]
    logits: NDArray[np.float32]
    balanced: float
    tried: dict[float | None, float]
    seconds: float


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
    progress: Callable[[int, int], None] | None = None,
) -> HeadChoice:
    """Cross-validate the head `name` for the values of its knob.

    Args:
        features: (N, D), standardised.
        target: (N,).
        class_counts: images of each class among all N.
        name: in `HEADS`.
        settings: of the head; a knob that they set is not chosen.
        folds: at least 2.
        seed: of the folds.
        seconds: no further value is tried when the next would end later; the default always is.
        most_images: of each class, so many are used at most.
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
    labels = target.numpy()
    fold = deal_folds(labels, folds, seed, most_images)
    values: Sequence[float | None] = (None,) if kind.knob is None or kind.knob in given else kind.values
    start, found = time.monotonic(), dict[float | None, NDArray[np.float32]]()
    for value in values:
        elapsed = time.monotonic() - start
        if found and seconds is not None and elapsed * (len(found) + 1) / len(found) > seconds:
            break
        if progress:
            progress(len(found) * folds, len(values) * folds)
        chosen = given if value is None else given | {str(kind.knob): value}
        found[value] = _out_of_fold(features, target, fold, folds, name, chosen, len(class_counts))
    if progress:
        progress(len(values) * folds, len(values) * folds)
    scored = np.flatnonzero(fold >= 0)
    correct = {value: (logits[scored].argmax(1) == labels[scored]) for value, logits in found.items()}
    scores = {value: balanced_accuracy(right, labels[scored]) for value, right in correct.items()}
    first = best = next(iter(found))
    for value in found:
        if scores[value] > scores[best] and is_better(correct[value], correct[first], labels[scored], seed):
            best = value
    chosen = given if best is None else given | {str(kind.knob): best}
    resolved = kind(class_counts, **chosen).settings()
    return HeadChoice(resolved, found[best], scores[best], scores, time.monotonic() - start)


def deal_folds(
    labels: NDArray[np.int64], folds: int, seed: int = 0, most_images: int | None = None
) -> NDArray[np.int64]:
    """The fold of each image; −1 for one that always trains, −2 for one that is left out."""
    generator = np.random.default_rng(seed)
    fold = np.empty(len(labels), np.int64)
    for k in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == k))
        fold[members] = (np.arange(len(members)) + generator.integers(folds)) % folds
        if len(members) == 1:
            fold[members] = -1
        if most_images is not None:
            fold[members[most_images:]] = -2
    return fold


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
        inside = torch.from_numpy(np.flatnonzero((fold != number) & (fold != -2)))
        outside = torch.from_numpy(np.flatnonzero(fold == number))
        if not len(outside):
            return np.empty((0, num_classes), np.float32)
        counts = torch.bincount(target[inside], minlength=num_classes).tolist()
        classifier = HEADS[name](counts, **settings).fit(features[inside], target[inside])
        with torch.no_grad():
            found: NDArray[np.float32] = classifier(features[outside]).numpy()
        return found

    for number, found in enumerate(in_parallel(predict, range(folds))):
        logits[fold == number] = found
    return logits


def balanced_accuracy(correct: NDArray[np.bool_], labels: NDArray[np.int64]) -> float:
    """The mean over classes of the share that is correct; 0 if nothing was scored."""
    present = np.unique(labels)
    return float(np.mean([correct[labels == k].mean() for k in present])) if len(present) else 0.0


def is_better(new: NDArray[np.bool_], old: NDArray[np.bool_], labels: NDArray[np.int64], seed: int = 0) -> bool:
    """Whether the balanced accuracy rises by more than one standard error, by a bootstrap within classes."""
    change = new.astype(float) - old.astype(float)
    generator = np.random.default_rng(seed)
    means = []
    for k in np.unique(labels):
        members = change[labels == k]
        means.append(members[generator.integers(len(members), size=(_RESAMPLES, len(members)))].mean(1))
    drawn = np.mean(means, axis=0)
    return float(drawn.std()) < float(np.mean([change[labels == k].mean() for k in np.unique(labels)]))
