"""A mixed batch: the mixed images, both labels of each, and the weight of the first label.

The contract is two hard labels and a weight per image, not soft labels: a loss that uses the count, the margin or
the focal factor of *the* label is not defined for a soft one. The loss of a mixed batch is

    L = mean_i( w_i · ℓ(logits_i, a_i) + (1 − w_i) · ℓ(logits_i, b_i) )

with ℓ the loss of one image (`reduction="none"`), a its label, b that of its partner and w the weight. For
cross-entropy this equals the cross-entropy with the soft label w·a + (1 − w)·b. The partners are a random
permutation of the batch, but for `unimix`, which draws them.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from longtail._registry import Registry


class Mixed(NamedTuple):
    """A mixed batch.

    Attributes:
        images: as given, mixed.
        target_a: int64, the labels as given.
        target_b: int64, the labels of the partners.
        weight: float32, the weight of `target_a` in the loss of each image, 0 to 1.
    """

    images: Tensor
    target_a: Tensor
    target_b: Tensor
    weight: Tensor

    def loss(self, loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor) -> Tensor:
        """The weighted mean over the batch of `loss(logits, target)`, which must give one number per image."""
        of_a, of_b = loss(logits, self.target_a), loss(logits, self.target_b)
        if of_a.shape != self.weight.shape:
            raise ValueError(
                f"loss must give one number per image, shape {tuple(self.weight.shape)}, got {tuple(of_a.shape)} "
                "(build it with reduction='none')"
            )
        return (self.weight * of_a + (1 - self.weight) * of_b).mean()


MIXINGS = Registry[Callable[..., Mixed]]("mixings")


def draw_share(alpha: float, generator: torch.Generator) -> float:
    """λ ~ Beta(alpha, alpha)."""
    if alpha <= 0:
        raise ValueError(f"alpha must be above 0, got {alpha}")
    # torch has no Beta distribution that takes a generator, so the generator seeds NumPy's.
    seed = int(torch.randint(2**62, (), generator=generator))
    return float(np.random.default_rng(seed).beta(alpha, alpha))


def draw_partners(target: Tensor, generator: torch.Generator) -> Tensor:
    """A random permutation of the batch."""
    return torch.randperm(len(target), generator=generator).to(target.device)
