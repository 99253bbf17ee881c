"""Checks of the arguments of losses.

Shapes and types are always checked. Values (labels in range, counts of at least 1) are checked where that is free:
on the CPU and outside `torch.compile`. On an accelerator it would synchronise at every step, so there a label out of
range does what it does in `F.cross_entropy`: a device-side assert, or nothing for -100.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from longtail.losses._reduction import check_reduction

ClassCountsLike = Sequence[int] | Tensor
"""The number of images of each class: a list, a `ClassCounts`, or a tensor of shape (K,)."""


def check_at_least_zero(**values: float) -> None:
    """Raise unless each hyper-parameter is finite and zero or more."""
    for name, value in values.items():
        if not 0 <= value < float("inf"):
            raise ValueError(f"{name} must be finite and zero or more, got {value}")


def check_share(**values: float) -> None:
    """Raise unless each hyper-parameter is at least 0 and less than 1."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} must be at least 0 and less than 1, got {value}")


def counts_tensor(class_counts: ClassCountsLike) -> Tensor:
    """`class_counts` as a tensor of shape (K,), each at least 1.

    A class without training images has no prior, no margin and no weight, so these losses are not defined for it;
    it must be left out of the class list.
    """
    # `list`: torch converts a plain list fast, and any other sequence item by item.
    counts = class_counts if isinstance(class_counts, Tensor) else torch.tensor(list(class_counts))
    if counts.ndim != 1 or counts.numel() == 0:
        raise ValueError(f"class_counts must be one number per class, got shape {tuple(counts.shape)}")
    if _values_are_free(counts) and not bool((counts >= 1).all()):
        k = int((~(counts >= 1)).nonzero()[0])
        raise ValueError(
            f"class_counts must be at least 1 for every class, got {counts[k].item()} for class {k} "
            "(leave out classes without training images)"
        )
    return counts


def at_least_float32(tensor: Tensor) -> Tensor:
    """`tensor` in float32, or in float64 if it is that: half precision cannot hold a sum of many exponentials."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def check_logits(logits: Tensor) -> Tensor:
    """`logits` in float32 or better, after checking that they are (batch, classes)."""
    if logits.ndim != 2:
        raise ValueError(f"logits must have shape (batch, classes), got {tuple(logits.shape)}")
    if not logits.is_floating_point():
        raise TypeError(f"logits must be floating point, got {logits.dtype}")
    return at_least_float32(logits)


def check_inputs(logits: Tensor, target: Tensor, reduction: str) -> Tensor:
    """`logits` in float32 or better, after checking that `(logits, target, reduction)` fit together."""
    check_reduction(reduction)
    logits = check_logits(logits)
    if target.is_floating_point():
        raise TypeError(
            f"target must be class indices (int64), got {target.dtype}; for mixed labels, mix the losses: "
            "share * loss(logits, a) + (1 - share) * loss(logits, b)"
        )
    if target.dtype != torch.int64:
        raise TypeError(f"target must be class indices (int64), got {target.dtype}; call target.long()")
    if target.shape != logits.shape[:1]:
        raise ValueError(
            f"target must have one label per row of logits, shape ({logits.shape[0]},), got shape {tuple(target.shape)}"
        )
    if _values_are_free(target) and target.numel():
        low, high = (int(value) for value in target.aminmax())
        if low < 0 or high >= logits.shape[1]:
            raise ValueError(
                f"target must be from 0 to {logits.shape[1] - 1}, got {low if low < 0 else high} "
                "(there is no ignore_index: drop such rows first)"
            )
    return logits


def counts_for(logits: Tensor, class_counts: ClassCountsLike) -> Tensor:
    """`class_counts` checked against the columns of `logits`, on their device and of their dtype."""
    counts = counts_tensor(class_counts)
    if len(counts) != logits.shape[1]:
        raise ValueError(f"class_counts must have one count per column of logits, {logits.shape[1]}, got {len(counts)}")
    return counts.to(logits)


def _values_are_free(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()
