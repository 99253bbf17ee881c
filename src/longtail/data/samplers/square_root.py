"""Square-root sampling: p_k ∝ √n_k, halfway between instance-balanced and class-balanced.

Kang et al., "Decoupling representation and classifier for long-tailed recognition", ICLR 2020, eq. 1 with
q = 1/2, after Mahajan et al., "Exploring the limits of weakly supervised pretraining", ECCV 2018.
"""

import numpy as np
from numpy.typing import NDArray

from longtail.data.samplers.base import SAMPLERS, EpochSampler


@SAMPLERS.register("square_root")
class SquareRootSampler(EpochSampler):
    """Each class by the root of its size: p_k ∝ √n_k."""

    def order(self, epoch: int, /) -> NDArray[np.int64]:
        """Draw classes with the weight √n_k."""
        return self.draw(np.sqrt(self.class_sizes), epoch)
