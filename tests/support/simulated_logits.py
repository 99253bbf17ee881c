"""Logits like those of a model trained on long-tailed images: sure of the head, blind to the tail."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from longtail.class_counts import ClassCounts


@dataclass(frozen=True)
class Simulated:
    logits: npt.NDArray[np.float32]
    target: npt.NDArray[np.int64]
    counts: ClassCounts
    classes: list[str]


def long_tailed_counts(num_classes: int, *, largest: int = 500, imbalance_factor: float = 100) -> ClassCounts:
    steps = max(num_classes - 1, 1)
    return ClassCounts(int(largest * imbalance_factor ** (-k / steps)) for k in range(num_classes))


def simulate(
    num_classes: int = 100,
    *,
    images_per_class: int = 20,
    largest: int = 500,
    imbalance_factor: float = 100,
    tau: float = 0.0,
    seed: int = 0,
) -> Simulated:
    """A test set with equal classes; `tau` = 1 takes the head's advantage away, as balanced softmax does.

    Each image has a difficulty of its own, errors fall mostly on neighbours of the same super-class of five,
    and the logit of a class grows with its log prior.
    """
    rng = np.random.default_rng(seed)
    counts = long_tailed_counts(num_classes, largest=largest, imbalance_factor=imbalance_factor)
    target = np.repeat(np.arange(num_classes), images_per_class)
    rng.shuffle(target)
    log_prior = np.log(np.maximum(counts.priors, 1e-9))
    logits = rng.normal(0, 1.1, (len(target), num_classes))
    family = (np.arange(num_classes) // 5)[None] == (target // 5)[:, None]
    logits += 1.3 * family
    skill = 2.6 + 0.25 * (log_prior - log_prior.mean()) + rng.normal(0, 0.8, num_classes)
    logits[np.arange(len(target)), target] += skill[target] + rng.normal(0, 1.2, len(target))
    logits += 0.75 * (1 - tau) * (log_prior - log_prior.mean())
    return Simulated((1.4 * logits).astype(np.float32), target, counts, class_names(num_classes))


def class_names(num_classes: int) -> list[str]:
    if num_classes == 10:
        return ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    first = ["amber", "arctic", "black", "brown", "common", "crested", "desert", "dwarf", "eastern", "giant"]
    second = ["beetle", "finch", "fox", "gull", "heron", "lizard", "moth", "orchid", "otter", "oak"]
    names = [f"{a} {b}" for b in second for a in first]
    return [names[k % 100] + ("" if k < 100 else f" {k // 100 + 1}") for k in range(num_classes)]
