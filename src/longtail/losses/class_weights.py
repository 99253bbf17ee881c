"""Class weights that favour rare classes: by inverse frequency, or by the effective number of samples.

With n_k training images in class k and K classes:

    E_k = (1 - β^n_k) / (1 - β)
    w_k = K (1 / E_k) / Σ_j (1 / E_j)

β = 0 gives equal weights and β → 1 inverse frequency, w_k ∝ 1 / n_k. Images of one class overlap, so the n-th adds
less than the first; β says how much less. The weights have mean 1.

Reference: Cui et al., "Class-Balanced Loss Based on Effective Number of Samples", CVPR 2019,
sections 3 and 4.
"""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from longtail.losses._checks import ClassCountsLike, check_share, counts_tensor

Weighting = Literal["none", "inverse_frequency", "effective_number"]


def class_weights(
    class_counts: ClassCountsLike, *, weighting: Weighting = "effective_number", beta: float = 0.9999
) -> Tensor:
    """Weights of the classes, with mean 1; see the module's docstring for the equation.

    Args:
        class_counts: training images of each class, at least 1.
        weighting: "effective_number" (uses `beta`), "inverse_frequency", or "none" for ones.
        beta: β of the effective number, 0 <= β < 1. The paper tries 0.9, 0.99, 0.999 and 0.9999.

    Returns:
        (K,), float32, or float64 if the counts are float64.

    Example:
        >>> class_weights([100, 1], weighting="inverse_frequency")
        tensor([0.0198, 1.9802])
    """
    check_weighting(weighting, beta)
    counts = counts_tensor(class_counts)
    counts = counts if counts.is_floating_point() else counts.float()
    if weighting == "none":
        return counts.new_ones(counts.shape)
    if weighting == "effective_number":
        # expm1: 1 - β**n loses most of its digits in float32 when β is near 1 and n is small.
        effective = -torch.expm1(counts * (math.log(beta) if beta else -math.inf))
    else:
        effective = counts
    return len(counts) / effective / effective.reciprocal().sum()


def check_weighting(weighting: str, beta: float) -> None:
    """Raise unless `weighting` is known and `beta` is at least 0 and less than 1."""
    if weighting not in get_args(Weighting):
        raise ValueError(f"weighting must be one of {', '.join(get_args(Weighting))}, got {weighting!r}")
    check_share(beta=beta)
