"""Data sets that a CPU can afford: `NAME-16px`, and `NAME-val` and `NAME-16px-val` to choose readings on.

`-16px` halves the side of CIFAR's images (`-14px` Fashion-MNIST's), each pixel the mean of four: a quarter of
the cost. The training images are those of the full-size set, by the same seed.

In `-val` the real test images take no part: of each class of the *training* set a tenth (CIFAR: 500 images) is held out
first and stands in the place of the test, and the long tail is drawn from the rest, with as many images a class as in
the original where there are as many. So readings are chosen on balanced images that no table of results is made of.
The digits, of which there are few, hold out a fifth, another one for each seed.

`-fifth` has a fifth of the images of each class: 1,000 ... 10 for CIFAR-10-LT at imbalance 100. A small network then
reaches within minutes the state that a large one reaches on the whole set after hundreds of epochs: it fits what it
has, and what is left is generalisation.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from longtail.data.datasets import DATASETS
from longtail.data.datasets.arrays import ArraySet
from longtail.data.datasets.cifar import CIFAR10_LT, CIFAR100_LT
from longtail.data.datasets.digits import DIGITS_LT
from longtail.data.datasets.fashion_mnist import FASHION_MNIST_LT
from longtail.data.images import ArrayImages
from longtail.data.inventory import FileList, Inventory
from longtail.data.sources import Report
from longtail.data.splits import SplitName, exponential_counts, holdout_indices, long_tail_indices


@dataclass(frozen=True)
class Variant:
    """A set in memory with its images halved, its test replaced by held-out training images, or both.

    Args:
        original: the set.
        halve: whether each pixel becomes the mean of four.
        hold_out: the part of the training images of each class that replaces the test; 0 keeps the test.
        fixed: whether that part is the same for all seeds.
        share: the part of the long-tailed training images of each class that is kept.
    """

    original: ArraySet
    halve: bool
    hold_out: float = 0.0
    fixed: bool = True
    share: float = 1.0

    def find(self, root: Path, imbalance_factor: float | None, seed: int) -> Inventory:
        """As `ArraySet.find`."""
        found = self.original.find(root, imbalance_factor, seed)
        factor = self.original.imbalance_factor if imbalance_factor is None else imbalance_factor
        every, test = self.original.load(root)
        wanted = exponential_counts(int(self.share * np.bincount(every.targets).min()), len(found.classes), factor)
        if self.hold_out:
            kept, out = holdout_indices(every.targets, self.hold_out, 0 if self.fixed else seed)
            every, test = every.select(kept), every.select(out)
        counts = np.minimum(wanted, np.bincount(every.targets)).tolist()
        train = every.select(long_tail_indices(every.targets, counts, seed))
        splits: dict[SplitName, ArrayImages | FileList] = {"train": train, "test": test}
        if self.halve:
            splits = {name: _halved(part) for name, part in splits.items()}
        return Inventory(found.name, found.classes, splits, found.mean, found.std, benchmark=True)

    def fetch(self, root: Path, report: Report) -> str:
        """Bring the set itself."""
        return self.original.fetch(root, report)


def _halved(part: ArrayImages | FileList) -> ArrayImages:
    assert isinstance(part, ArrayImages)
    n, height, width, channels = part.images.shape
    cells = part.images.reshape(n, height // 2, 2, width // 2, 2, channels)
    return ArrayImages(np.rint(cells.mean(axis=(2, 4))).astype(np.uint8), part.targets)


REDUCED_DATASETS = {
    "digits-lt-val": Variant(DIGITS_LT, halve=False, hold_out=0.2, fixed=False),
    "fashion-mnist-lt-tenth": Variant(FASHION_MNIST_LT, halve=False, share=0.1),
    "fashion-mnist-lt-fifth-14px": Variant(FASHION_MNIST_LT, halve=True, share=0.2),
    "fashion-mnist-lt-fifth-14px-val": Variant(FASHION_MNIST_LT, halve=True, hold_out=0.1, share=0.2),
}
for _cifar in (CIFAR10_LT, CIFAR100_LT):
    REDUCED_DATASETS[f"{_cifar.name}-val"] = Variant(_cifar, halve=False, hold_out=0.1)
    for _suffix, _hold_out in (("", 0.0), ("-val", 0.1)):
        REDUCED_DATASETS[f"{_cifar.name}-16px{_suffix}"] = Variant(_cifar, halve=True, hold_out=_hold_out)
        REDUCED_DATASETS[f"{_cifar.name}-fifth-16px{_suffix}"] = Variant(
            _cifar, halve=True, hold_out=_hold_out, share=0.2
        )


def register() -> None:
    """Let `open_dataset`, and so a run, find the sets by their names."""
    for name, variant in REDUCED_DATASETS.items():
        DATASETS.register(name)(variant)
