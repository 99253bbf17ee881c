"""What was found where the user pointed: the classes, the images of each split, and what is odd about them.

It is found without decoding an image, so a check can look at it before anything is trained.
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


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    Example:
        >>> counted(1, "class"), counted(1200, "class"), counted(2, "image")
        ('1 class', '1,200 classes', '2 images')
    """
    plural = "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{plural if number != 1 else ''}"


@dataclass(frozen=True)
class Problem:
    """Something that the user should know about the data.

    Args:
        code: a word that programs can rely on.
        message: one line for people.
        paths: the files or folders in question.
        severity: a `warning` can spoil a result; a `note` is dealt with and only reported.
    """

    code: str
    message: str
    paths: tuple[str, ...] = ()
    severity: Literal["warning", "note"] = "warning"


@dataclass(frozen=True)
class FileList:
    """Image files with their labels; relative paths are below `root`."""

    root: Path
    paths: tuple[str, ...]
    targets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.paths)

    def select(self, indices: ArrayLike) -> "FileList":
        """The files at `indices`, in that order."""
        chosen = np.asarray(indices, dtype=np.int64)
        return FileList(self.root, tuple(self.paths[i] for i in chosen), self.targets[chosen])


@dataclass(frozen=True)
class Inventory:
    """The classes and the images of each split, as they are on disk or in memory.

    Args:
        name: what the user called it.
        classes: names, in the order of the labels; always those of the training images.
        splits: `train`, and `val` and `test` if there are any.
        mean: the mean of each channel, of values between 0 and 1.
        std: the standard deviation of each channel.
        benchmark: whether it is a published one, whose splits are used as they are.
        problems: what is odd.
        notes: how the layout was understood, where that was not obvious.
    """

    name: str
    classes: tuple[str, ...]
    splits: Mapping[SplitName, ArrayImages | FileList]
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    benchmark: bool = False
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    def count(self, split: SplitName) -> int:
        """The number of images of a split; 0 if there is no such split."""
        return len(self.splits[split]) if split in self.splits else 0

    @property
    def class_counts(self) -> ClassCounts:
        """The training images of each class."""
        return ClassCounts(np.bincount(self.splits["train"].targets, minlength=len(self.classes)).tolist())

    def without(self, paths: Collection[str]) -> "Inventory":
        """The same data without these files; a split other than train that loses all of its files is gone."""
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
