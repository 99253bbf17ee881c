"""Random bits that are a pure function of what they are for: (seed, epoch, image), not of who asks or when.

A generator with state gives other numbers when the work is split in another way: over workers, over ranks, by a
restart in mid-epoch. Here a number is a hash of the words that identify it, so any process can compute the
numbers of any image, and of whole batches at once. The hash absorbs one word after another,

    s_0 = 0,    s_{i+1} = mix(s_i + φ (word_i + 1))  (mod 2^64),

where φ is the odd number nearest to 2^64 divided by the golden ratio and `mix` is the finaliser of SplitMix64
(Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014; its constants are
Stafford's variant 13). NumPy's generators are not used: their methods may give other numbers in another version.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Words = int | NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
# Distinct from the purposes of the samplers, 1 to 3, which stand at the same place.
_IMAGES = 4


def random_bits(*words: Words) -> NDArray[np.uint64]:
    """64 random bits for each element of the broadcast `words`.

    Example:
        >>> bits = random_bits(0, np.arange(3))
        >>> bool((bits[1:] == random_bits(0, np.arange(1, 3))).all())
        True
    """
    state = np.zeros(1, np.uint64)
    for word in words:
        # Through int64, so that a negative seed wraps instead of raising.
        state = _mix(state + _GOLDEN * (np.atleast_1d(np.asarray(word, np.int64)).astype(np.uint64) + np.uint64(1)))
    return state


def uniform(*words: Words) -> NDArray[np.float64]:
    """A number in [0, 1) for each element of the broadcast `words`."""
    return (random_bits(*words) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutation(count: int, *words: int) -> NDArray[np.int64]:
    """The numbers 0 ... count - 1 in the order of the random bits of `words`."""
    return np.argsort(random_bits(*words, np.arange(count)), kind="stable")


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))


@dataclass(frozen=True)
class ImageDraws:
    """The random numbers of a batch of images, each a function of (seed, epoch, image) and its purpose alone.

    Args:
        seed: the seed of the run.
        epoch: the epoch, from 0.
        index: the images.
        repeat: how often each was shown before in this epoch; without it, a sampler that repeats the images of
            small classes would augment them in the same way each time.
        view: the number of the view.
    """

    seed: int
    epoch: int
    index: NDArray[np.int64]
    repeat: NDArray[np.int64]
    view: int = 0

    def uniform(self, purpose: int, count: int) -> NDArray[np.float64]:
        """`count` numbers in [0, 1) for each image; each purpose has its own."""
        image = self.index[:, None], self.repeat[:, None]
        return uniform(self.seed, self.epoch, _IMAGES, self.view, purpose, *image, np.arange(count))
