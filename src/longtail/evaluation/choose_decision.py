"""Choose a decision on validation images, and say what it promises on images that did not choose it.

Each parameter is set by hand or chosen, in this order:

1. τ by the accuracy under the priors q of the images to come, which is the balanced accuracy where they are equal; 0
   stays unless another is better by more than one standard error, since the best of many is often luck;
2. T by the likelihood, each class weighing q_k; where both are chosen, each is chosen twice, the other given;
3. c as the smallest confidence above which the share that is right reaches the precision that is wanted.

The promise is cross-fitted: the images are dealt to five folds, the parameters chosen on four are applied to the fifth,
and all images are measured together. So no image tells of a choice that it took part in. What is stored is then chosen
on all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from longtail._errors import counted
from longtail.evaluation._arrays import Bools, Floats, Ints, as_logits, as_target, softmax
from longtail.evaluation.confusion_matrix import confusion_matrix, recall_per_class
from longtail.evaluation.decision import Decision, decide
from longtail.evaluation.posthoc import TAUS, adjust_logits, fit_temperature
from longtail.evaluation.promise import measure_promise

_FOLDS, _PASSES = 5, 2
_RESAMPLES = 200
# Bounds of T: with few images none may be wrong, and certainty would follow.
_COLDEST, _HOTTEST = 0.1, 10.0
# Where no confidence reaches the precision: almost nothing gets a prediction.
_NEVER_SURE = 0.999999


@dataclass(frozen=True)
class Wanted:
    """What a user asks for.

    Args:
        tau: τ; None to choose it.
        temperature: T; None to choose it.
        prior: q; None for equal priors.
        prior_name: what to call q.
        abstain_below: c.
        precision: the share of right predictions to choose c by; None to leave c as it is.
        how: in words, where a parameter that is given comes from.
    """

    tau: float | None = None
    temperature: float | None = None
    prior: tuple[float, ...] | None = None
    prior_name: str = "uniform"
    abstain_below: float = 0.0
    precision: float | None = None
    how: tuple[tuple[str, str], ...] = ()

    @property
    def needs_validation(self) -> bool:
        """Whether something is to be chosen."""
        return self.tau is None or self.temperature is None or self.precision is not None


def choose_decision(
    logits: npt.ArrayLike,
    target: npt.ArrayLike,
    class_counts: Sequence[int],
    wanted: Wanted = Wanted(),  # noqa: B008 (frozen)
    *,
    seed: int = 0,
) -> Decision:
    """Choose what `wanted` leaves open, on these validation images, with the promise.

    Args:
        logits: (N, K), of the model as trained.
        target: (N,).
        class_counts: training images of each class.
        wanted: what is asked for.
        seed: of the folds and of the resampling.
    """
    values = as_logits(logits)
    labels = as_target(target, num_images=len(values), num_classes=values.shape[1])
    fold = _deal(labels, seed)
    held = np.empty_like(values)
    threshold = np.zeros(len(values))
    for number in range(_FOLDS):
        inside, outside = fold != number, fold == number
        if outside.any() and inside.any():
            chosen = _choose(values[inside], labels[inside], class_counts, wanted, seed)
            held[outside], threshold[outside] = chosen.apply(values[outside]), chosen.abstain_below
        else:  # one image: there is nothing to choose on
            held[outside] = values[outside]
    found = _choose(values, labels, class_counts, wanted, seed)
    return replace(
        found,
        promised=measure_promise(held, labels, found.priors, threshold, seed=seed),
        before=measure_promise(values, labels, found.priors, seed=seed),
    )


def _choose(values: Floats, labels: Ints, class_counts: Sequence[int], wanted: Wanted, seed: int) -> Decision:
    on = f"chosen on {counted(len(labels), 'validation image')}"
    how = dict(wanted.how)
    prior = np.full(values.shape[1], 1 / values.shape[1]) if wanted.prior is None else np.array(wanted.prior)
    tau, temperature = wanted.tau or 0.0, wanted.temperature or 1.0
    for _ in range(_PASSES if wanted.tau is None and wanted.temperature is None else 1):
        if wanted.tau is None:
            tau = _choose_tau(values / np.float32(temperature), labels, class_counts, prior, seed)
            how["tau"] = f"{on} by {'balanced accuracy' if wanted.prior is None else 'accuracy under the prior'}"
        if wanted.temperature is None:
            shift = decide(class_counts, tau=tau, prior=wanted.prior).shift
            temperature = float(np.clip(fit_temperature(values, labels, prior=prior, shift=shift), _COLDEST, _HOTTEST))
            how["temperature"] = f"{on} by likelihood"
    found = decide(
        class_counts,
        tau=tau,
        temperature=temperature,
        prior=wanted.prior,
        prior_name=wanted.prior_name,
        abstain_below=wanted.abstain_below,
        how=how,
    )
    if wanted.precision is None:
        return found
    how["abstain_below"] = f"{on} for a precision of {wanted.precision:.1%}"
    below = _choose_threshold(found.apply(values), labels, prior, wanted.precision)
    return replace(found, abstain_below=below, how=how)


def _choose_tau(values: Floats, labels: Ints, counts: Sequence[int], prior: Floats, seed: int) -> float:
    """The τ of the best accuracy under the prior, if it is clearly better than 0."""
    known = np.log(np.maximum(prior, 1e-9))
    right = {tau: (adjust_logits(values, counts, tau) + known).argmax(axis=1) == labels for tau in TAUS}
    number = values.shape[1]

    def score(correct: Bools) -> float:
        recall = recall_per_class(confusion_matrix(labels, np.where(correct, labels, (labels + 1) % number), number))
        present = ~np.isnan(recall)
        return float((prior[present] * recall[present]).sum() / max(prior[present].sum(), 1e-12))

    scores = {tau: score(correct) for tau, correct in right.items()}
    best = max(scores, key=lambda tau: (scores[tau], -tau))
    change = right[best].astype(np.float64) - right[0.0].astype(np.float64)
    generator = np.random.default_rng(seed)
    present = np.unique(labels)
    share = prior[present] / max(prior[present].sum(), 1e-12)
    drawn = np.zeros(_RESAMPLES)
    for k, weight in zip(present, share, strict=True):
        own = change[labels == k]
        drawn += weight * own[generator.integers(len(own), size=(_RESAMPLES, len(own)))].mean(axis=1)
    return best if scores[best] - scores[0.0] > drawn.std() else 0.0


def _choose_threshold(values: Floats, labels: Ints, prior: Floats, precision: float) -> float:
    """The smallest confidence such that those with at least as much are right often enough."""
    confidence = softmax(values.astype(np.float64)).max(axis=1)
    correct = values.argmax(axis=1) == labels
    weights = (prior / np.maximum(np.bincount(labels, minlength=len(prior)), 1))[labels]
    order = np.argsort(-confidence, kind="stable")
    right, all_ = np.cumsum((weights * correct)[order]), np.cumsum(weights[order])
    good = np.flatnonzero(right >= precision * all_)
    if not len(good):
        return _NEVER_SURE
    last = int(good[-1])
    # All are answered: no threshold is needed. Else half-way to the first that is not.
    if last == len(order) - 1:
        return 0.0
    return float(min((confidence[order[last]] + confidence[order[last + 1]]) / 2, _NEVER_SURE))


def _deal(labels: Ints, seed: int) -> Ints:
    """The fold of each image; each fold has its share of every class."""
    generator = np.random.default_rng(seed)
    fold = np.empty(len(labels), np.int64)
    start = 0
    for k in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == k))
        fold[members] = (start + np.arange(len(members))) % _FOLDS
        start += len(members)
    return fold
