"""The batches of an epoch: which images each one has, and which rank makes them.

The sampler orders the images of an epoch for all ranks together. Batch k is the k-th run of `batch_size` images,
and rank r of W makes every W-th image of it. So `batch_size` counts all ranks: each of two ranks makes half of
the batch that a single process would make.

If the last images do not fill a batch:

| `last` | Rule | For |
|---|---|---|
| "drop" | left out of this epoch, unless there are no others | training: the same on any number of ranks |
| "even" | kept if each rank gets the same number, two or more; the rest is left out | training on few images |
| "every" | each image exactly once; ranks may differ by one image, and so by one batch | evaluation |

So training never sees a batch of one image, which has no variance to normalise by.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from longtail._errors import counted
from longtail.data.samplers.base import EpochSampler
from longtail.data.views import BatchKey

Last = Literal["drop", "even", "every"]


class BatchPlan:
    """The keys of this rank's batches in the sampler's current epoch, from batch number `start` on.

    Args:
        sampler: the order of the images, and the rank of this process.
        batch_size: the number of images in a batch, over all ranks.
        last: what to do with images that do not fill a batch.
    """

    def __init__(self, sampler: EpochSampler, *, batch_size: int, last: Last = "drop") -> None:
        ranks = sampler.world_size
        if batch_size < 1 or batch_size % ranks:
            raise ValueError(
                f"batch_size must be a positive multiple of the number of ranks, {ranks}, got {batch_size}: "
                "it counts the images of all ranks"
            )
        self.sampler, self.batch_size, self.last, self.start = sampler, batch_size, last, 0
        if last != "every" and not self.batches():
            raise ValueError(
                f"batch_size must give each rank at least two images, got {batch_size} for {counted(ranks, 'rank')} "
                f"and {counted(sampler.num_samples, 'image')}: use fewer ranks or more images"
            )

    def batches(self) -> list[slice]:
        """The place of each batch in the order of the epoch, over all ranks."""
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
        """The number of batches in a whole epoch, whatever `start` is."""
        return len(self.batches())

    def __iter__(self) -> Iterator[BatchKey]:
        order = self.sampler.order(self.sampler.epoch)
        repeats = count_repeats(order)
        rank, world_size = self.sampler.rank, self.sampler.world_size
        for batch in self.batches()[self.start :]:
            mine = slice(batch.start + rank, batch.stop, world_size)
            yield BatchKey(self.sampler.epoch, order[mine], repeats[mine])


def count_repeats(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each entry of `order` has occurred before it.

    Example:
        >>> count_repeats(np.array([7, 3, 7, 7, 3])).tolist()
        [0, 0, 1, 2, 1]
    """
    by_image = np.argsort(order, kind="stable")
    sorted_order = order[by_image]
    repeats = np.empty_like(order)
    repeats[by_image] = np.arange(len(order)) - np.searchsorted(sorted_order, sorted_order, side="left")
    return repeats
