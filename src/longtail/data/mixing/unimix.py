"""UniMix: as mixup, but partners come from rare classes more often, and the rarer class of a pair weighs more.

    partner j of i:  P(j) ∝ n_j^τ over the images of the batch, with replacement
    x̃_i = λ_i x_i + (1 − λ_i) x_j,    w_i = λ_i = ( b_i + n_j / (n_i + n_j) ) mod 1,    b_i ~ Beta(α, α)

with n_i the training images of the class of image i, and b and j drawn for each image. Below α = 1 the Beta
distribution is dense at 0 and 1, so λ_i is dense at n_j / (n_i + n_j): near 1 where i is rare and j frequent.

Xu et al., "Towards Calibrated Model for Long-Tailed Visual Recognition from Prior Perspective", NeurIPS 2021, section
3.2; α = 0.8 is the paper's, and τ = −0.1 its value for CIFAR-100-LT (−0.5 for CIFAR-10-LT).
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from longtail.data.mixing.base import MIXINGS, Mixed


@MIXINGS.register("unimix")
def unimix(
    images: Tensor,
    target: Tensor,
    *,
    class_counts: Sequence[int],
    alpha: float = 0.8,
    tau: float = -0.1,
    generator: torch.Generator,
) -> Mixed:
    """Average each image with one of a rarer class; see the module's docstring for the equations.

    Args:
        images: float, shape (n, channels, height, width).
        target: int64 labels.
        class_counts: the number of training images of each class, at least 1.
        alpha: α of the Beta distribution.
        tau: τ, the power of the class size by which partners are drawn; 0 draws all images alike.
        generator: torch's, on the CPU.
    """
    if alpha <= 0:
        raise ValueError(f"alpha must be above 0, got {alpha}")
    if not abs(tau) < float("inf"):
        raise ValueError(f"tau must be finite, got {tau}")
    counts = torch.tensor(list(class_counts), dtype=torch.float64)
    if float(counts.min()) < 1:
        raise ValueError(f"class_counts must be at least 1 for every class, got {counts.min():g}")
    own = counts[target.cpu()]
    chances = (tau * own.log()).softmax(0)
    partners = torch.multinomial(chances, len(own), replacement=True, generator=generator)
    # torch has no Beta distribution that takes a generator, so the generator seeds NumPy's.
    seed = int(torch.randint(2**62, (), generator=generator))
    drawn = torch.from_numpy(np.random.default_rng(seed).beta(alpha, alpha, len(own)))
    share = ((drawn + own[partners] / (own + own[partners])) % 1).to(images.device, torch.float32)
    partners = partners.to(target.device)
    mixed = torch.lerp(images[partners], images, share.to(images.dtype).view(-1, 1, 1, 1))
    return Mixed(mixed, target, target[partners], share)
