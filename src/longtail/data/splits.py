"""The splits of a data set, and how they are drawn: long-tailed subsets and held-out parts, class by class.

Every draw has its own generator of (seed, class), so that it depends on the labels, the seed and nothing
else, and touches no global random numbers. Images are ordered by raw 64-bit words of PCG64, a stream that
NumPy promises never to change, which it does not promise for `shuffle` or `choice`: a frozen index list stays
frozen.

A smaller subset is part of a larger one: the images of CIFAR-10-LT at ρ = 100 are among those at ρ = 50.
"""

import hashlib
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

SplitName = Literal["train", "val", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "val", "test")

Indices = NDArray[np.int64]

# Draws of different purposes must not be the same draw.
_SUBSET, _HOLDOUT = 0, 1


def long_tail_indices(targets: ArrayLike, class_counts: Sequence[int], seed: int = 0) -> Indices:
    """Choose `class_counts[k]` images of each class k.

    Args:
        targets: the label of each image.
        class_counts: how many to keep of each class, at most as many as there are.
        seed: another seed, another choice.

    Returns:
        The chosen images in ascending order.

    Example:
        >>> long_tail_indices([0, 1, 0, 1, 0, 1], [3, 1])
        array([0, 2, 3, 4])
    """
    labels = np.asarray(targets)
    parts = []
    for k, count in enumerate(class_counts):
        members = _shuffled(np.flatnonzero(labels == k), _SUBSET, seed, k)
        if count > len(members):
            raise ValueError(f"class_counts[{k}] must be at most {len(members)}, the images there are, got {count}")
        parts.append(members[:count])
    return np.sort(np.concatenate(parts))


def holdout_indices(targets: ArrayLike, fraction: float, seed: int = 0) -> tuple[Indices, Indices]:
    """Part the images into those to keep and those to hold out, in each class alike.

    A class of n images gives round(fraction n) of them, but at least one if it has two or more and never all,
    so that a class with a single image stays in training.

    Args:
        targets: the label of each image.
        fraction: the part to hold out, 0 <= fraction < 1; 0 holds out nothing.
        seed: another seed, another choice.

    Returns:
        (kept, held out), each in ascending order.
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"fraction must be at least 0 and below 1, got {fraction}")
    labels = np.asarray(targets)
    out = np.zeros(len(labels), dtype=bool)
    for k in np.unique(labels) if fraction else []:
        members = _shuffled(np.flatnonzero(labels == k), _HOLDOUT, seed, int(k))
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
