"""CIFAR-LT at half its size, for experiments that a CPU must afford: the data sets `NAME-16px` and `NAME-16px-val`.

Each pixel is the mean of four, so that an epoch costs a quarter. The training images are those of the full-size set, by
the same seed. In `-val` the real test images take no part: 500 images of each class of the *training* set are held out
first, stand in the place of the test, and the long tail is drawn from the rest (the largest class has 4,500 images
then, the others what they have in the original). So readings are chosen on balanced images that no table is made of.
Importing this registers the sets.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from longtail.data.datasets import DATASETS
from longtail.data.datasets.arrays import ArraySet
from longtail.data.datasets.cifar import CIFAR10_LT, CIFAR100_LT
from longtail.data.found import FileList, FoundData, SplitName
from longtail.data.images import ArrayImages
from longtail.data.profiles import exponential
from longtail.data.sources import Report
from longtail.data.splits import holdout_indices, long_tail_indices

HELD_OUT = 0.1


@dataclass(frozen=True)
class Reduced:
    """A set in memory with pixels averaged two by two."""

    original: ArraySet
    validate: bool

    def find(self, root: Path, imbalance_factor: float | None, seed: int) -> FoundData:
        """As `ArraySet.find`; with `validate`, held-out training images stand in the place of the test."""
        found = self.original.find(root, imbalance_factor, seed)
        train, test = found.splits["train"], found.splits["test"]
        if self.validate:
            factor = self.original.imbalance_factor if imbalance_factor is None else imbalance_factor
            every = self.original.load(root).train
            kept, out = holdout_indices(every.targets, HELD_OUT, seed=0)
            rest = every.select(kept)
            most = int(np.bincount(rest.targets).min())
            largest = int(np.bincount(every.targets).min())
            counts = [min(most, count) for count in exponential(largest, len(found.classes), factor)]
            train, test = rest.select(long_tail_indices(rest.targets, counts, seed)), every.select(out)
        splits: dict[SplitName, ArrayImages | FileList] = {"train": _halved(train), "test": _halved(test)}
        return FoundData(found.name, found.classes, splits, found.mean, found.std, benchmark=True)

    def fetch(self, root: Path, report: Report) -> str:
        """Bring the full-size set."""
        return self.original.fetch(root, report)


def _halved(part: object) -> ArrayImages:
    assert isinstance(part, ArrayImages)
    n, height, width, channels = part.images.shape
    cells = part.images.reshape(n, height // 2, 2, width // 2, 2, channels)
    return ArrayImages(np.rint(cells.mean(axis=(2, 4))).astype(np.uint8), part.targets)


for _original in (CIFAR10_LT, CIFAR100_LT):
    DATASETS.register(f"{_original.name}-16px")(Reduced(_original, validate=False))
    DATASETS.register(f"{_original.name}-16px-val")(Reduced(_original, validate=True))
