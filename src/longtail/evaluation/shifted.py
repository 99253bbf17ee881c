"""Accuracy of a model when the test set is long-tailed too: like the training set, or the other way round.

A balanced test set is one assumption about use. The protocols of LADE (Hong et al., CVPR 2021, section 4.2)
and SADE (Zhang et al., NeurIPS 2022, section 5.1) draw test sets with the prior

    q_k ∝ ρ^(−r_k / (K − 1))

where r_k is the rank of class k by training images, 0 for the largest (`forward`: the head is frequent in
test too), or by the reverse order (`backward`: the tail is frequent), for ρ = 50, 25, 10, 5, 2. Where q is
known, the logits of a model whose prior is p become z_k + log q_k − log p_k.

The accuracy here is Σ_k q_k recall_k over the classes with support: the expectation of the accuracy over all
test sets that the protocol could draw, where the papers draw one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from longtail.class_counts import ClassCounts
from longtail.evaluation._arrays import Floats, Ints, as_logits, as_target
from longtail.evaluation.confusion_matrix import confusion_matrix, recall_per_class

Direction = Literal["forward", "backward"]
IMBALANCE_FACTORS = (50.0, 25.0, 10.0, 5.0, 2.0)


@dataclass(frozen=True)
class ShiftedAccuracy:
    """Accuracy under one shifted test prior: of the model as it is, and with the logits adjusted to that prior."""

    direction: Direction | Literal["uniform"]
    imbalance_factor: float
    accuracy: float
    accuracy_known_prior: float


def shifted_prior(class_counts: Iterable[int], direction: Direction, imbalance_factor: float) -> Floats:
    """The test prior q (K,); classes of equal size keep the order of their indices.

    Example:
        >>> shifted_prior([500, 50, 5], "backward", 4.0).round(3).tolist()
        [0.143, 0.286, 0.571]
    """
    if imbalance_factor < 1:
        hint = f" (did you mean {1 / imbalance_factor:g}?)" if imbalance_factor > 0 else ""
        raise ValueError(f"imbalance_factor must be at least 1, got {imbalance_factor}{hint}")
    counts = np.array(list(ClassCounts(class_counts)))
    rank = np.empty(len(counts), dtype=np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    if direction == "backward":
        rank = len(counts) - 1 - rank
    weight = imbalance_factor ** (-rank / max(len(counts) - 1, 1))
    return np.asarray(weight / weight.sum())


def shifted_accuracy(
    logits: npt.ArrayLike,
    target: npt.ArrayLike,
    class_counts: Iterable[int],
    *,
    model_prior: Literal["train", "uniform"],
    imbalance_factors: Sequence[float] = IMBALANCE_FACTORS,
) -> tuple[ShiftedAccuracy, ...]:
    """Accuracy under each forward prior, the uniform one, and each backward prior.

    Args:
        logits: (N, K).
        target: (N,).
        class_counts: training images of each class.
        model_prior: the prior inside the logits: `train` after plain cross-entropy, `uniform` after balanced
            softmax, logit adjustment or class-balanced sampling.
        imbalance_factors: ρ of the shifted test sets.
    """
    values = as_logits(logits)
    labels = as_target(target, num_images=len(values), num_classes=values.shape[1])
    counts = ClassCounts(class_counts)
    prior = np.array(counts.priors) if model_prior == "train" else np.full(len(counts), 1 / len(counts))
    if prior.min() == 0:
        raise ValueError(f"class_counts must be at least 1 with model_prior='train', but class {prior.argmin()} has 0")
    cases: list[tuple[Direction | Literal["uniform"], float, Floats]] = [
        ("forward", factor, shifted_prior(counts, "forward", factor)) for factor in sorted(imbalance_factors)[::-1]
    ]
    cases.append(("uniform", 1.0, np.full(len(counts), 1 / len(counts))))
    cases += [("backward", factor, shifted_prior(counts, "backward", factor)) for factor in sorted(imbalance_factors)]
    return tuple(
        ShiftedAccuracy(
            direction,
            factor,
            accuracy=_weighted_recall(values, labels, test_prior),
            accuracy_known_prior=_weighted_recall(values + np.log(test_prior / prior), labels, test_prior),
        )
        for direction, factor, test_prior in cases
    )


def _weighted_recall(logits: Floats, target: Ints, prior: Floats) -> float:
    recall = recall_per_class(confusion_matrix(target, logits.argmax(axis=1), logits.shape[1]))
    present = ~np.isnan(recall)
    return float((prior[present] * recall[present]).sum() / prior[present].sum())
