"""What mixing two images of a batch gives: the mixed images, both labels, and the weight of the first.

The contract is hard labels and a weight for each image, not soft labels: a loss that uses the class counts,
the margin or the focal factor of *the* label has no meaning on a soft one. The loss of a mixed batch is

    L = mean_i( w_i · ℓ(logits_i, a_i) + (1 − w_i) · ℓ(logits_i, b_i) )

with ℓ the loss of one image (`reduction="none"`), a its label, b that of its partner and w the weight. For
cross-entropy this equals the cross-entropy with the soft label w·a + (1 − w)·b. The partners are a random
permutation of the batch.
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
        weight: float32, the share of `target_a` in the loss, 0 to 1, one an image.
    """

    images: Tensor
    target_a: Tensor
    target_b: Tensor
    weight: Tensor

    def loss(self, loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor) -> Tensor:
        """The mean over the batch of `loss(logits, target)`, which must give one number an image."""
        of_a, of_b = loss(logits, self.target_a), loss(logits, self.target_b)
        if of_a.shape != self.weight.shape:
            raise ValueError(
                f"loss must give one number an image (reduction='none'), shape {tuple(self.weight.shape)}, "
                f"got {tuple(of_a.shape)}"
            )
        return (self.weight * of_a + (1 - self.weight) * of_b).mean()


MIXINGS = Registry[Callable[..., Mixed]]("mixings")


def draw_share(alpha: float, generator: torch.Generator) -> float:
    """λ ~ Beta(alpha, alpha)."""
    if alpha <= 0:
        raise ValueError(f"alpha must be above 0, got {alpha}")
    # torch has no Beta variate that takes a generator, so the generator seeds NumPy's.
    seed = int(torch.randint(2**62, (), generator=generator))
    return float(np.random.default_rng(seed).beta(alpha, alpha))


def draw_partners(target: Tensor, generator: torch.Generator) -> Tensor:
    """A random permutation of the batch."""
    return torch.randperm(len(target), generator=generator).to(target.device)
