"""Class-balanced sampling: each class is drawn equally often, p_k = 1 / K over the classes with images.

Images of tail classes are repeated within an epoch, and most images of head classes are left out of it. Used to
retrain the classifier in decoupled training (Kang et al., "Decoupling representation and classifier for
long-tailed recognition", ICLR 2020, eq. 1 with q = 0).
"""

import numpy as np
from numpy.typing import NDArray

from longtail.data.samplers.base import SAMPLERS, EpochSampler


@SAMPLERS.register("class_balanced")
class ClassBalancedSampler(EpochSampler):
    """Each class equally often: p_k = 1 / K."""

    def order(self, epoch: int, /) -> NDArray[np.int64]:
        """Draw classes with the same weight."""
        return self.draw(np.ones(len(self.classes)), epoch)
