"""Which images make up which batch of an epoch, on which rank.

The order of an epoch is the sampler's, for all ranks together; batch k is the k-th `batch_size` images of
it, and rank r of W makes every W-th image of that batch. So `batch_size` is that of the whole run: two
ranks take half of each batch of one process.

What becomes of the last images, when they do not fill a batch:

| `last` | Rule | For |
|---|---|---|
| "drop" | left out of this epoch, unless they are all there is | training: the same on any number of ranks |
| "even" | kept, the same number on each rank, if two or more; the others are left out | training on few |
| "every" | each image exactly once; ranks may differ by one image, and so by one batch | evaluation |

A batch of one image is thus never trained on: it has no variance to normalise by.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from longtail.data.samplers.base import EpochSampler
from longtail.data.views import BatchKey

Last = Literal["drop", "even", "every"]


class BatchPlan:
    """The keys of this rank's batches in the sampler's present epoch, from batch number `start` on.

    Args:
        sampler: the order, and this process's rank.
        batch_size: the images of a batch, all ranks together.
        last: what becomes of the images that do not fill a batch.
    """

    def __init__(self, sampler: EpochSampler, *, batch_size: int, last: Last = "drop") -> None:
        ranks = sampler.world_size
        if batch_size < 1 or batch_size % ranks:
            raise ValueError(
                f"batch_size must be a multiple of the {ranks} ranks, got {batch_size}: "
                "it counts the images of all ranks"
            )
        self.sampler, self.batch_size, self.last, self.start = sampler, batch_size, last, 0
        if last != "every" and not self.batches():
            raise ValueError(
                f"batch_size must give each of {ranks} ranks at least two images, got {batch_size} with "
                f"{sampler.num_samples} images in all: use fewer ranks or more images"
            )

    def batches(self) -> list[slice]:
        """Where in the epoch's order each batch lies, all ranks together."""
        size, ranks = self.batch_size, self.sampler.world_size
        full, rest = divmod(self.sampler.num_samples, size)
        batches = [slice(size * k, size * (k + 1)) for k in range(full)]
        if self.last == "every":
            keep = rest > self.sampler.rank
        else:
            rest -= rest % ranks
            keep = rest >= 2 * ranks and (self.last == "even" or not full)
        batches = batches if size >= 2 * ranks or self.last == "every" else []
        return [*batches, slice(size * full, size * full + rest)] if keep else batches

    def __len__(self) -> int:
        """The batches of a whole epoch, wherever it starts."""
        return len(self.batches())

    def __iter__(self) -> Iterator[BatchKey]:
        order = self.sampler.order(self.sampler.epoch)
        repeats = count_repeats(order)
        rank, world_size = self.sampler.rank, self.sampler.world_size
        for batch in self.batches()[self.start :]:
            mine = slice(batch.start + rank, batch.stop, world_size)
            yield BatchKey(self.sampler.epoch, order[mine], repeats[mine])


def count_repeats(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each entry stood in `order` before.

    Example:
        >>> count_repeats(np.array([7, 3, 7, 7, 3])).tolist()
        [0, 0, 1, 2, 1]
    """
    by_image = np.argsort(order, kind="stable")
    sorted_order = order[by_image]
    repeats = np.empty_like(order)
    repeats[by_image] = np.arange(len(order)) - np.searchsorted(sorted_order, sorted_order, side="left")
    return repeats
