"""Input of the evaluation: arrays or tensors in, checked numpy arrays out.

Everything here is numpy, so that a saved run is evaluated without importing torch. A tensor may be on any device, with
or without a gradient.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def _to_numpy(values: npt.ArrayLike) -> npt.NDArray[np.generic]:
    detach = getattr(values, "detach", None)
    if detach is None:
        return np.asarray(values)
    tensor = detach().cpu()
    # numpy has no bfloat16, and half precision is too coarse to sum probabilities in.
    return np.asarray(tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor)


def as_logits(logits: npt.ArrayLike, *, name: str = "logits") -> Floats:
    """`logits` as a finite (N, K) array, float32 if it came as such and float64 otherwise."""
    values = _to_numpy(logits)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"{name} must have the shape (images, classes), with at least one of each, got {values.shape}")
    floats: Floats = values.astype(values.dtype if values.dtype == np.float32 else np.float64, copy=False)
    bad = np.flatnonzero(~np.isfinite(floats).all(axis=1))
    if bad.size:
        raise ValueError(
            f"{name} must be finite, got NaN or infinity in {bad.size} of {len(floats)} rows "
            f"(first: row {bad[0]}); the model has probably diverged: evaluate an earlier checkpoint"
        )
    return floats


def as_target(target: npt.ArrayLike, *, num_images: int, num_classes: int, name: str = "target") -> Ints:
    """`target` as an (N,) array of class indices."""
    values = _to_numpy(target)
    if values.shape != (num_images,):
        raise ValueError(f"{name} must have one label for each image, the shape ({num_images},), got {values.shape}")
    if not np.issubdtype(values.dtype, np.integer):
        raise TypeError(f"{name} must hold class indices (integers), got {values.dtype}")
    if values.min() < 0 or values.max() >= num_classes:
        raise ValueError(f"{name} must be 0 to {num_classes - 1}, got {values.min()} to {values.max()}")
    return values.astype(np.int64, copy=False)


def as_class_names(classes: Sequence[str] | None, *, num_classes: int) -> tuple[str, ...]:
    """`classes` as unique names; the indices where `classes` is None."""
    names = tuple(str(k) for k in range(num_classes)) if classes is None else tuple(classes)
    if len(names) != num_classes:
        raise ValueError(f"classes must name each of the {num_classes} columns of logits, got {len(names)}")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"classes must be unique, got {twice!r} twice")
    return names


def softmax(logits: Floats) -> Floats:
    """Row-wise exp(z_k) / Σ_j exp(z_j), without overflow."""
    exponentials: Floats = np.exp(logits - logits.max(axis=1, keepdims=True))
    exponentials /= exponentials.sum(axis=1, keepdims=True)
    return exponentials
