"""Instance-balanced sampling: each image once per epoch, so p_k ∝ n_k."""

import numpy as np
from numpy.typing import NDArray

from longtail.data.samplers.base import SAMPLERS, EpochSampler, shuffled


@SAMPLERS.register("instance")
class InstanceSampler(EpochSampler):
    """Each image once, in random order; a larger `num_samples` continues with another shuffle."""

    def order(self, epoch: int, /) -> NDArray[np.int64]:
        """Shuffle all images."""
        rounds = -(-self.num_samples // len(self.targets))
        orders = [shuffled(len(self.targets), turn, seed=self.seed, epoch=epoch) for turn in range(rounds)]
        return np.concatenate(orders)[: self.num_samples]
