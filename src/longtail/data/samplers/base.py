"""The base of all samplers: an order of the images for each epoch, split over ranks, resumable anywhere.

A sampler is one pure function, `order(epoch)`: the images of the epoch for *all* ranks together, from
(seed, epoch) alone. The rest follows from it:

- rank r of W takes every W-th image, r, r + W, ... So the k-th batches of all ranks, of B / W images each, make up
  the k-th batch of B images of a single process, and no two ranks share a place in the order;
- the last `len(order) % W` images are left out, so that all ranks take the same number of steps; other images are
  left out in the next epoch. Evaluation must neither leave out nor repeat any: see `sequential`;
- an epoch is resumed by skipping what was seen: `set_epoch(epoch, start=...)`.

A sampler with replacement draws a class first, by its weight, and then takes the images of the class in turn from
a list that is shuffled again when it is used up. So an image is repeated only after all others of its class, and a
class with a single image shows it each time.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Sampler

from longtail._registry import Registry
from longtail.data.random_bits import permutation, random_bits, uniform

# Each purpose has its own random numbers.
_SHUFFLE, _CLASS, _IMAGE = 1, 2, 3


class EpochSampler(Sampler[int], ABC):
    """The base of all samplers.

    Args:
        targets: the label of each image, 0 or more.
        seed: the order is a function of (seed, epoch).
        rank: the rank of this process, 0 ... world_size - 1.
        world_size: the number of ranks.
        epochs: the length of the training, for samplers that change over it.
        num_samples: the number of images in an epoch, over all ranks; defaults to the number of targets.
    """

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
        self.targets = np.asarray(targets, np.int64)
        if self.targets.ndim != 1 or not len(self.targets):
            raise ValueError(f"targets must be one label per image, got shape {self.targets.shape}")
        if self.targets.min() < 0:
            raise ValueError(f"targets must be 0 or more, got {self.targets.min()}")
        if world_size < 1 or not 0 <= rank < world_size:
            raise ValueError(f"rank must be from 0 to world_size - 1, got rank={rank} and world_size={world_size}")
        if epochs is not None and epochs < 1:
            raise ValueError(f"epochs must be at least 1, got {epochs}")
        if num_samples is not None and num_samples < 1:
            raise ValueError(f"num_samples must be at least 1, got {num_samples}")
        self.classes, self.class_sizes = np.unique(self.targets, return_counts=True)
        self.num_samples = len(self.targets) if num_samples is None else num_samples
        self.seed, self.rank, self.world_size, self.epochs = seed, rank, world_size, epochs
        self.epoch, self.start = 0, 0

    @abstractmethod
    def order(self, epoch: int, /) -> NDArray[np.int64]:
        """The images of an epoch, in order, for all ranks together."""

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Move to `epoch`, and past the first `start` images of this rank in it."""
        self.epoch, self.start = epoch, start

    def __iter__(self) -> Iterator[int]:
        mine = self.order(self.epoch)[self.rank :: self.world_size][: len(self)]
        return iter(mine[self.start :].tolist())

    def __len__(self) -> int:
        return self.num_samples // self.world_size

    def draw(self, weights: NDArray[np.float64], epoch: int) -> NDArray[np.int64]:
        """The images of an epoch, with classes drawn in proportion to `weights`."""
        drawn = draw_classes(weights / weights.sum(), self.num_samples, seed=self.seed, epoch=epoch)
        return deal_images(self.classes[drawn], self.targets, seed=self.seed, epoch=epoch)


SAMPLERS = Registry[type[EpochSampler]]("samplers")


def shuffled(count: int, turn: int, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """Each of 0 ... count - 1 once, in the random order of (seed, epoch, turn)."""
    return permutation(count, seed, epoch, _SHUFFLE, turn)


def draw_classes(probabilities: NDArray[np.float64], count: int, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """`count` independent draws of a class."""
    edges = np.cumsum(probabilities)
    # Rounding may put the last edge below 1, and a draw above it would have no class.
    return np.searchsorted(edges[:-1], uniform(seed, epoch, _CLASS, np.arange(count)), side="right")


def deal_images(classes: NDArray[np.int64], targets: NDArray[np.int64], *, seed: int, epoch: int) -> NDArray[np.int64]:
    """An image for each of `classes`: its images in turn, shuffled, and shuffled again when they are used up."""
    by_class = np.argsort(targets, kind="stable")
    order = np.argsort(classes, kind="stable")
    drawn_classes, starts = np.unique(classes[order], return_index=True)
    first = np.searchsorted(targets[by_class], drawn_classes, side="left")
    last = np.searchsorted(targets[by_class], drawn_classes, side="right")
    dealt = np.empty_like(classes)
    for low, high, places in zip(first, last, np.split(order, starts[1:]), strict=True):
        members = by_class[low:high]
        rounds = np.arange(-(-len(places) // len(members)))
        keys = random_bits(seed, epoch, _IMAGE, rounds[:, None], members)
        dealt[places] = members[np.argsort(keys, axis=1, kind="stable")].reshape(-1)[: len(places)]
    return dealt
