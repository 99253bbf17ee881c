"""Remix: images are mixed as in mixup, but where class sizes differ much the smaller class gets the label.

    x̃_i = λ x_i + (1 − λ) x_j,    λ ~ Beta(α, α), one for the batch

          ⎧ 0   if n_i / n_j ≥ κ and λ < τ          (the partner's class is much smaller)
    w_i = ⎨ 1   if n_i / n_j ≤ 1 / κ and 1 − λ < τ  (the image's own class is much smaller)
          ⎩ λ   otherwise

with n_i the training images of the class of image i. Chou et al., "Remix: Rebalanced mixup", ECCV workshops
2020, section 3; κ = 3 and τ = 0.5 are the paper's.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from longtail.data.mixing.base import MIXINGS, Mixed
from longtail.data.mixing.mixup import mixup


@MIXINGS.register("remix")
def remix(
    images: Tensor,
    target: Tensor,
    *,
    class_counts: Sequence[int],
    alpha: float = 1.0,
    kappa: float = 3.0,
    tau: float = 0.5,
    generator: torch.Generator,
) -> Mixed:
    """Average each image with its partner, with the label of the smaller class; see the module's docstring.

    Args:
        images: float, shape (n, channels, height, width).
        target: int64 labels.
        class_counts: the number of training images of each class.
        alpha: α of the Beta distribution.
        kappa: κ, the ratio of class sizes from which the smaller class gets the label; at least 1.
        tau: τ, the share below which the image of the larger class loses its label.
        generator: torch's, on the CPU.
    """
    if kappa < 1:
        raise ValueError(f"kappa must be at least 1, got {kappa}")
    if not 0 <= tau <= 1:
        raise ValueError(f"tau must be from 0 to 1, got {tau}")
    mixed = mixup(images, target, alpha=alpha, generator=generator)
    counts = torch.tensor(list(class_counts), dtype=torch.float64, device=target.device)
    own, partner = counts[mixed.target_a], counts[mixed.target_b]
    # Products instead of ratios: a class without training images would divide by 0.
    give = (own >= kappa * partner) & (mixed.weight < tau)
    keep = (own * kappa <= partner) & (1 - mixed.weight < tau)
    return mixed._replace(weight=mixed.weight.masked_fill(give, 0.0).masked_fill(keep, 1.0))
