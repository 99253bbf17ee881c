"""Reversed sampling: p_k ∝ 1 / n_k, so the smallest class is seen most.

With w_k = n_max / n_k the probability is P_k = w_k / Σ_j w_j. It feeds the re-balancing branch of BBN (Zhou
et al., "BBN: Bilateral-branch network with cumulative learning for long-tailed visual recognition", CVPR
2020, section 4.2).
"""

import numpy as np
from numpy.typing import NDArray

from longtail.data.samplers.base import SAMPLERS, EpochSampler


@SAMPLERS.register("reverse")
class ReverseSampler(EpochSampler):
    """Each class by the inverse of its size: p_k ∝ 1 / n_k."""

    def order(self, epoch: int, /) -> NDArray[np.int64]:
        """Draw classes with the weight n_max / n_k."""
        return self.draw(self.class_sizes.max() / self.class_sizes, epoch)
