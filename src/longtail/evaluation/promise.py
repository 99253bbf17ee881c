"""What a decision gives on images that stand for others: accuracy, calibration, and abstention under given priors.

Validation and test images may mix the classes differently: the one as in training, the other equally. So that a
promise made on the one can hold on the other, the images of class k together weigh q_k, the class's share of the images
to come:

    w_i = q_{y_i} / n_{y_i},   normalised over the classes with images

and each number below is a weighted mean. With equal q the accuracy is the balanced accuracy. Intervals are those of
`longtail.evaluation.bootstrap`, with the weights computed again in each resample.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from longtail.evaluation._arrays import Floats, Ints, as_logits, as_target, softmax
from longtail.evaluation.bootstrap import Estimate, bootstrap_interval, choose_resampling, resample
from longtail.evaluation.calibration import bin_index
from longtail.evaluation.confusion_matrix import widen_interval

_BINS = 15
_SURE = 1e-12
# Which are shares of images, whose intervals end at 0 and 1.
_SHARES = ("accuracy", "ece", "answered", "precision")


@dataclass(frozen=True)
class Promise:
    """Numbers under the priors of the images to come.

    Args:
        images: that were measured.
        accuracy: the share that is right; the balanced accuracy under equal priors.
        ece: the expected calibration error.
        nll: the mean negative log-likelihood, which the temperature is fitted by.
        answered: the share that gets a prediction; 1 without abstention.
        precision: the accuracy of these; None if there are none.
    """

    images: int
    accuracy: Estimate
    ece: Estimate
    nll: Estimate
    answered: Estimate
    precision: Estimate | None


def measure_promise(
    logits: npt.ArrayLike,
    target: npt.ArrayLike,
    priors: npt.ArrayLike,
    abstain_below: "float | Floats" = 0.0,
    *,
    replicates: int = 1000,
    seed: int = 0,
) -> Promise:
    """Measure logits (N, K), with what a decision does to them already done.

    Args:
        logits: as above.
        target: (N,).
        priors: q, (K,).
        abstain_below: an image with a smaller confidence gets no prediction; one number, or one for each image.
        replicates: resamples for the intervals.
        seed: of the resampling.
    """
    values = as_logits(logits)
    labels = as_target(target, num_images=len(values), num_classes=values.shape[1])
    shares = np.maximum(np.asarray(priors, dtype=np.float64), _SURE)
    probs = softmax(values.astype(np.float64))
    confidence = probs.max(axis=1)
    images = {
        "correct": (values.argmax(axis=1) == labels).astype(np.float64),
        "confidence": confidence,
        "nll": -np.log(np.maximum(np.take_along_axis(probs, labels[:, None], axis=1)[:, 0], _SURE)),
        "answered": (confidence >= abstain_below).astype(np.float64),
    }
    point = _numbers(images, labels, shares, np.arange(len(labels))[None])
    resampling = choose_resampling(labels)
    drawn = [
        _numbers(images, labels, shares, rows)
        for rows in resample(labels, replicates=replicates, resampling=resampling, seed=seed)
    ]
    weights = _weights(labels, shares, np.arange(len(labels))[None])[0]
    # Of equal weight, so many images would tell as much.
    trials = dict.fromkeys(_SHARES, float(1 / (weights**2).sum()))
    own = weights * images["answered"]
    trials["precision"] = float(own.sum() ** 2 / (own**2).sum()) if own.any() else 0.0

    def estimate(name: str) -> Estimate:
        value = float(point[name][0])
        if len(labels) < 2:
            return Estimate(value)
        low, high = bootstrap_interval(value, np.concatenate([part[name] for part in drawn]))
        if name in _SHARES and low is not None and high is not None:
            low, high = max(low, 0.0), min(high, 1.0)
            if name != "ece":
                low, high = widen_interval(value, low, high, trials[name])
        return Estimate(value, low, high)

    precision = None if np.isnan(point["precision"][0]) else estimate("precision")
    return Promise(len(labels), estimate("accuracy"), estimate("ece"), estimate("nll"), estimate("answered"), precision)


def is_kept(promised: Estimate, held: Estimate) -> bool:
    """Whether what held may be what was promised: their difference is within the interval of a difference.

    The ends that face each other are added in quadrature, since the images of the two are independent.

    Example:
        >>> is_kept(Estimate(0.80, 0.76, 0.84), Estimate(0.75, 0.72, 0.78))
        True
        >>> is_kept(Estimate(0.80, 0.79, 0.81), Estimate(0.75, 0.74, 0.76))
        False
    """
    upper, lower = (promised, held) if promised.value >= held.value else (held, promised)
    if upper.low is None or lower.high is None:
        return True
    reach = np.hypot(max(upper.value - upper.low, 0.0), max(lower.high - lower.value, 0.0))
    return bool(upper.value - lower.value <= reach)


def verdict(promised: Estimate, held: Estimate, *, lower_is_better: bool = False) -> str:
    """`kept`, or `exceeded` or `broken` where what held differs from what was promised."""
    if is_kept(promised, held):
        return "kept"
    return "exceeded" if (held.value < promised.value) == lower_is_better else "broken"


def read_promise(content: Mapping[str, Any] | None) -> Promise | None:
    """The promise whose plain values are `content`."""
    if content is None:
        return None
    estimates = {
        key: None if content[key] is None else Estimate(**content[key])
        for key in ("accuracy", "ece", "nll", "answered", "precision")
    }
    return Promise(images=int(content["images"]), **estimates)  # type: ignore[arg-type]  # only precision may be None


def _weights(labels: Ints, shares: Floats, rows: Ints) -> Floats:
    """The weight of each drawn image (R, n); a row sums to one."""
    resamples, number = len(rows), len(shares)
    drawn = labels[rows]
    offset = np.arange(resamples)[:, None] * number
    support = np.bincount((drawn + offset).ravel(), minlength=resamples * number).reshape(resamples, number)
    by_class = np.where(support > 0, shares / np.maximum(support, 1), 0.0)
    weights = np.take_along_axis(by_class, drawn, axis=1)
    result: Floats = weights / weights.sum(axis=1, keepdims=True)
    return result


def _numbers(images: Mapping[str, Floats], labels: Ints, shares: Floats, rows: Ints) -> dict[str, Floats]:
    """Each number for each of R resamples `rows` (R, n)."""
    weights = _weights(labels, shares, rows)
    correct, answered = images["correct"][rows], images["answered"][rows]
    bins = bin_index(images["confidence"], _BINS)[rows] + np.arange(len(rows))[:, None] * _BINS
    excess = weights * (correct - images["confidence"][rows])
    gaps = np.bincount(bins.ravel(), weights=excess.ravel(), minlength=len(rows) * _BINS).reshape(len(rows), _BINS)
    share = (weights * answered).sum(axis=1)
    right = (weights * answered * correct).sum(axis=1)
    return {
        "accuracy": (weights * correct).sum(axis=1),
        "ece": np.abs(gaps).sum(axis=1),
        "nll": (weights * images["nll"][rows]).sum(axis=1),
        "answered": share,
        "precision": np.where(share > 0, right / np.maximum(share, _SURE), np.nan),
    }
