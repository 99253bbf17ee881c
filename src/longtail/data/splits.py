"""The splits of a data set, and how they are drawn class by class: long-tailed subsets and held-out parts.

The long-tailed subset of a balanced set of K classes keeps

    n_k = ⌊n_max ρ^(−k/(K−1))⌋,  k = 0 ... K−1

images of class k, with the imbalance factor ρ = n_max / n_min: the exponential profile of CIFAR-LT (Cui et al.,
"Class-Balanced Loss Based on Effective Number of Samples", CVPR 2019, section 5).

Every draw has its own generator, seeded by (seed, class): it depends on the labels and the seed alone, and leaves
the global generators untouched. Images are ordered by raw 64-bit words of PCG64. NumPy promises never to change
that stream, as it does not promise for `shuffle` or `choice`, so a frozen index list stays frozen.

A smaller subset is part of a larger one: the images of CIFAR-10-LT at ρ = 100 are among those at ρ = 50.
"""

import hashlib
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from longtail.class_counts import ClassCounts

SplitName = Literal["train", "val", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "val", "test")

Indices = NDArray[np.int64]

# Draws of different purposes must not be the same draw.
_SUBSET, _HOLDOUT = 0, 1


def exponential_counts(max_count: int, num_classes: int, imbalance_factor: float) -> ClassCounts:
    """The exponential profile: class sizes that fall by the same ratio from class to class.

    Args:
        max_count: n_max, the images of the largest class.
        num_classes: K.
        imbalance_factor: ρ, from 1 to `max_count`.

    Example:
        >>> list(exponential_counts(5000, 10, 100))
        [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    """
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
    if max_count < 1:
        raise ValueError(f"max_count must be at least 1, got {max_count}")
    if not imbalance_factor >= 1:
        hint = f" (did you mean {1 / imbalance_factor:g}?)" if 0 < imbalance_factor < 1 else ""
        raise ValueError(f"imbalance_factor must be at least 1, got {imbalance_factor:g}{hint}")
    if imbalance_factor > max_count:
        raise ValueError(
            f"imbalance_factor must be at most max_count = {max_count}, got {imbalance_factor:g}: "
            "the smallest class would have no image"
        )
    last = max(num_classes - 1, 1)
    # The last class is exactly n_max / ρ, which floating point may put a hair below the whole number.
    return ClassCounts(int(max_count * imbalance_factor ** (-k / last) + 1e-6) for k in range(num_classes))


def long_tail_indices(targets: ArrayLike, class_counts: Sequence[int], seed: int = 0) -> Indices:
    """Choose `class_counts[k]` images of each class k.

    Args:
        targets: the label of each image.
        class_counts: the number of images to keep of each class, at most as many as there are.
        seed: the seed of the choice.

    Returns:
        The indices of the chosen images, ascending.

    Example:
        >>> long_tail_indices([0, 1, 0, 1, 0, 1], [3, 1])
        array([0, 2, 3, 4])
    """
    labels = np.asarray(targets)
    parts = []
    for k, count in enumerate(class_counts):
        members = _shuffled(np.flatnonzero(labels == k), _SUBSET, seed, k)
        if count > len(members):
            raise ValueError(f"class_counts[{k}] must be at most {len(members)}, the number of its images, got {count}")
        parts.append(members[:count])
    return np.sort(np.concatenate(parts))


def holdout_indices(
    targets: ArrayLike, fraction: float, seed: int = 0, *, smallest: int = 2
) -> tuple[Indices, Indices]:
    """Split the images into those to keep and those to hold out, stratified by class.

    Of a class of n images, round(fraction n) are held out: at least one if n is `smallest` or more, and never all
    of them, so a class with a single image stays in training. A class with fewer images keeps them all.

    Args:
        targets: the label of each image.
        fraction: the fraction to hold out, 0 <= fraction < 1; 0 holds out nothing.
        seed: the seed of the choice.
        smallest: the fewest images of a class of which any are held out.

    Returns:
        The indices of the kept and of the held-out images, each ascending.
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"fraction must be at least 0 and less than 1, got {fraction}")
    labels = np.asarray(targets)
    out = np.zeros(len(labels), dtype=bool)
    for k in np.unique(labels) if fraction else []:
        members = _shuffled(np.flatnonzero(labels == k), _HOLDOUT, seed, int(k))
        if len(members) < smallest:
            continue
        size = min(max(round(fraction * len(members)), 1), len(members) - 1)
        out[members[:size]] = True
    return np.flatnonzero(~out), np.flatnonzero(out)


def checksum(indices: ArrayLike) -> str:
    """The SHA-256 of an index list, as little-endian 64-bit integers."""
    return hashlib.sha256(np.asarray(indices).astype("<i8").tobytes()).hexdigest()


def _shuffled(members: Indices, purpose: int, seed: int, k: int) -> Indices:
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, got {seed}")
    words = np.random.PCG64(np.random.SeedSequence([seed, purpose, k])).random_raw(len(members))
    return members[np.argsort(words, kind="stable")].astype(np.int64)
