"""Mixup: each image is averaged with another, and so are the losses of their labels.

    x̃_i = λ x_i + (1 − λ) x_j,    w_i = λ,    λ ~ Beta(α, α), one for the batch

Zhang et al., "mixup: Beyond empirical risk minimization", ICLR 2018, eq. 2.
"""

import torch
from torch import Tensor

from longtail.data.mixing.base import MIXINGS, Mixed, draw_partners, draw_share


@MIXINGS.register("mixup")
def mixup(images: Tensor, target: Tensor, *, alpha: float = 0.2, generator: torch.Generator) -> Mixed:
    """Average each image with its partner; see the module's docstring for the equation.

    Args:
        images: float, shape (n, channels, height, width).
        target: int64 labels.
        alpha: α; the smaller it is, the more one of the two images dominates. The paper has 1 for CIFAR.
        generator: torch's, on the CPU.
    """
    share = draw_share(alpha, generator)
    partners = draw_partners(target, generator)
    mixed = torch.lerp(images[partners], images, share)
    return Mixed(mixed, target, target[partners], images.new_full((len(target),), share, dtype=torch.float32))
