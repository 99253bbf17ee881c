"""The inventory of a data set: its classes, the images of each split, and what is wrong with them.

It is taken without decoding an image, and is what a check looks at before anything is trained.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from longtail.class_counts import ClassCounts
from longtail.data.images import ArrayImages
from longtail.data.splits import SplitName

# The statistics of ImageNet's training images, for photographs of which nothing else is known.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Problem:
    """Something that the user should know about the data.

    Args:
        code: a fixed word for programs.
        message: one line for people.
        paths: the files or folders concerned.
        severity: a `warning` can spoil a result; a `note` is handled and only reported.
    """

    code: str
    message: str
    paths: tuple[str, ...] = ()
    severity: Literal["warning", "note"] = "warning"


@dataclass(frozen=True)
class FileList:
    """Image files with their labels; paths are relative to `root` or absolute.

    `sizes` has the upright (height, width) of each file, shape (n, 2); None before a check has read the headers.
    """

    root: Path
    paths: tuple[str, ...]
    targets: NDArray[np.int64]
    sizes: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def select(self, indices: ArrayLike) -> "FileList":
        """The files at `indices`, in that order."""
        chosen = np.asarray(indices, dtype=np.int64)
        sizes = None if self.sizes is None else self.sizes[chosen]
        return FileList(self.root, tuple(self.paths[i] for i in chosen), self.targets[chosen], sizes)


@dataclass(frozen=True)
class Inventory:
    """The classes and the images of each split, as they are on disk or in memory.

    Args:
        name: the data as the user named it.
        classes: the class names, in the order of the labels; always those of the training images.
        splits: `train`, and `val` and `test` if they exist.
        mean: the mean of each channel, for values between 0 and 1.
        std: the standard deviation of each channel.
        benchmark: whether it is a published benchmark, whose splits are used as they are.
        mirrored: pairs of classes that are mirror images of each other; empty before a check has looked.
        problems: what is wrong.
        notes: how the layout was understood, where that is not obvious.
    """

    name: str
    classes: tuple[str, ...]
    splits: Mapping[SplitName, ArrayImages | FileList]
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    benchmark: bool = False
    mirrored: tuple[tuple[str, str], ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    def count(self, split: SplitName) -> int:
        """The number of images in a split; 0 if there is no such split."""
        return len(self.splits[split]) if split in self.splits else 0

    @property
    def class_counts(self) -> ClassCounts:
        """The number of training images of each class."""
        return ClassCounts(np.bincount(self.splits["train"].targets, minlength=len(self.classes)).tolist())

    def without(self, paths: Collection[str]) -> "Inventory":
        """The same data without these files; val or test is dropped if it loses all of its files."""
        gone = frozenset(paths)
        if not gone:
            return self
        splits = dict(self.splits)
        for name, part in self.splits.items():
            if isinstance(part, FileList):
                splits[name] = part.select([i for i, path in enumerate(part.paths) if path not in gone])
            if name != "train" and not len(splits[name]):
                del splits[name]
        return replace(self, splits=splits)
