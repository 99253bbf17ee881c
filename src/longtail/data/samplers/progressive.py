"""Progressively balanced sampling: from instance-balanced to class-balanced over the training.

    p_k(t) = (1 − t/T) n_k / N + (t/T) / K

with t the epoch (from 0), T the number of epochs, N images and K classes with images. Kang et al.,
"Decoupling representation and classifier for long-tailed recognition", ICLR 2020, eq. 2.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from longtail.data.samplers.base import SAMPLERS, EpochSampler


@SAMPLERS.register("progressive")
class ProgressiveSampler(EpochSampler):
    """From instance-balanced at epoch 0 towards class-balanced at epoch `epochs`, which must be given."""

    def __init__(
        self,
        targets: ArrayLike,
        *,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        epochs: int | None = None,
        num_samples: int | None = None,
    ) -> None:
        if epochs is None:
            raise ValueError("epochs must be given for the progressive sampler, got None: it changes over the training")
        super().__init__(targets, seed=seed, rank=rank, world_size=world_size, epochs=epochs, num_samples=num_samples)
        self._last = epochs

    def order(self, epoch: int, /) -> NDArray[np.int64]:
        """Draw classes with a mean of both weights that follows the training."""
        done = min(epoch / self._last, 1.0)
        weights = (1 - done) * self.class_sizes / self.class_sizes.sum() + done / len(self.classes)
        return self.draw(weights, epoch)
