"""Sequential sampling, for evaluation: each image exactly once over all ranks, in order.

Ranks may differ by one image: padding would count an image twice, and dropping would leave one out. So a loop over
it must not wait for other ranks before its end.
"""

import numpy as np
from numpy.typing import NDArray

from longtail.data.samplers.base import EpochSampler


class SequentialSampler(EpochSampler):
    """Image 0, 1, 2, ...; rank r of W has r, r + W, r + 2W, ..."""

    def order(self, _epoch: int, /) -> NDArray[np.int64]:
        """All images in order, the same in every epoch."""
        return np.arange(len(self.targets))

    def __len__(self) -> int:
        return len(range(self.rank, len(self.targets), self.world_size))
