"""The front door: a name, a folder or a CSV into training, validation and test images.

DATA is one of

- a named benchmark, `cifar10-lt`; with an imbalance factor, `cifar10-lt:50`; with the folder it lies in,
  `imagenet-lt:/data/imagenet`; or with both, `cifar10-lt:50:/data`;
- a folder of class folders, or of `train`, `val` and `test` folders;
- a CSV with `path,label[,split]`.

A named set is looked for in the root: the argument, else the environment's `LONGTAIL_DATA`, else the user's
cache folder. Nothing is ever downloaded here.

**Held-out images.** A benchmark is used as its papers use it: all training images train, and there is a
validation split only if the benchmark has one or `val_fraction` asks for it. Of anybody's own images 10 %
of the training split validate, unless there is a validation split. Without a test split, a validation split
takes its place (and validation is drawn anew from train), or else 20 % of the images are held out as a test
first. Every draw is stratified, depends on the seed, and comes from train: never from test.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from longtail._errors import DataError, UsageError
from longtail.class_counts import ClassCounts
from longtail.data.csv_list import find_csv_list
from longtail.data.datasets import DATASETS
from longtail.data.folder import find_folder, missing
from longtail.data.images import ArrayImages, FileImages, ImageDataset
from longtail.data.inventory import FileList, Inventory, Problem
from longtail.data.splits import SplitName, holdout_indices

__all__ = ["LongTailData", "data_root", "open_dataset", "take_inventory"]

VAL_FRACTION, TEST_FRACTION = 0.1, 0.2


@dataclass(frozen=True)
class LongTailData:
    """Images to train on, to select with and to measure, and what a trainer must know about them.

    Args:
        name: what the user called it.
        train: the training images.
        val: the validation images, drawn from train or given; a set of length 0 if there are none.
        test: the test images.
        classes: the names of the classes, in the order of the labels.
        class_counts: the images of each class in `train`.
        mean: of each channel, of values between 0 and 1: subtract it.
        std: of each channel: then divide by it.
        in_channels: 3 for RGB; 1 for the grey sets, which stay grey.
        image_size: (height, width) if all images have the same, else None.
        problems: what is odd about the data.
        notes: how its layout was understood, and what was held out.
    """

    name: str
    train: ImageDataset
    val: ImageDataset
    test: ImageDataset
    classes: tuple[str, ...]
    class_counts: ClassCounts
    mean: tuple[float, ...]
    std: tuple[float, ...]
    in_channels: int
    image_size: tuple[int, int] | None
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    def split(self, name: SplitName) -> ImageDataset:
        """The images of a split."""
        return {"train": self.train, "val": self.val, "test": self.test}[name]


def open_dataset(
    data: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    seed: int = 0,
    *,
    val_fraction: float | None = None,
    allow_empty: bool = False,
    ignore_unknown: bool = False,
    leave_out: Collection[str] = (),
) -> LongTailData:
    """Open a data set; see above for what DATA may be and which images are held out.

    Args:
        data: a name, a folder or a CSV.
        root: where named sets lie.
        seed: of the long-tailed subset and of the held-out images.
        val_fraction: the part of the training images to validate on, 0 for none; None is the default above. A
            validation split that is given stays as it is.
        allow_empty: leave classes without a training image out instead of stopping.
        ignore_unknown: leave out test images of classes that training does not have, instead of stopping.
        leave_out: files to leave out, such as those that a check found unreadable.

    Raises:
        DataError: the data is not there or cannot be used; its three lines say why and what to do.

    Example:
        >>> data = open_dataset("digits-lt:10")
        >>> list(data.class_counts)
        [120, 92, 71, 55, 43, 33, 25, 20, 15, 12]
    """
    found = take_inventory(data, root, seed, allow_empty=allow_empty, ignore_unknown=ignore_unknown)
    splits, notes = _hold_out(found.without(leave_out), seed, val_fraction)
    train = splits["train"]
    counts = ClassCounts(np.bincount(train.targets, minlength=len(found.classes)).tolist())
    return LongTailData(
        name=found.name,
        train=_as_dataset(train),
        val=_as_dataset(splits["val"] if "val" in splits else train.select([])),
        test=_as_dataset(splits["test"]),
        classes=found.classes,
        class_counts=counts,
        mean=found.mean,
        std=found.std,
        in_channels=train.images.shape[3] if isinstance(train, ArrayImages) else 3,
        image_size=train.images.shape[1:3] if isinstance(train, ArrayImages) else None,
        problems=found.problems,
        notes=(*found.notes, *notes),
    )


def take_inventory(
    data: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    seed: int = 0,
    *,
    allow_empty: bool = False,
    ignore_unknown: bool = False,
) -> Inventory:
    """Find what DATA names, as it is on disk, with nothing held out; arguments as for `open_dataset`."""
    text = os.fspath(data)
    name, _, rest = text.partition(":")
    try:
        if name in DATASETS:
            factor, place = _parse(text, rest)
            return DATASETS[name].find(data_root(place or root), factor, seed)
        path = Path(text)
        if path.suffix.lower() == ".csv" or path.is_file():
            return find_csv_list(path, allow_empty=allow_empty, ignore_unknown=ignore_unknown)
        if not path.exists() and os.sep not in text:
            raise _no_such(text)
        return find_folder(path, allow_empty=allow_empty, ignore_unknown=ignore_unknown)
    except OSError as error:
        place = str(error.filename or text)
        raise DataError(
            f"{place} cannot be read: {error.strerror or error}",
            "the images behind it would be missing",
            "check the path and its permissions",
            code="not-readable",
            paths=[place],
        ) from error


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """Where named sets lie: `root`, else `LONGTAIL_DATA`, else the user's cache folder."""
    place = root or os.environ.get("LONGTAIL_DATA")
    if place:
        return Path(place).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("longtail") / "data"


def _parse(text: str, rest: str) -> tuple[float | None, str]:
    """`factor`, `/path` or `factor:/path` behind a name."""
    if not rest:
        return None, ""
    word, _, place = rest.partition(":")
    try:
        return float(word), place
    except ValueError:
        pass
    if os.sep in rest or Path(rest).expanduser().is_dir():
        return None, rest
    name = text.partition(":")[0]
    raise UsageError(
        f"{text}: {rest!r} is neither an imbalance factor nor a folder",
        "behind the name stands the largest class over the smallest, or where the data lies",
        f"write {name}:100 or {name}:/path",
    )


def _no_such(text: str) -> DataError:
    """The error for a word that is neither a name nor a path."""
    import difflib

    near = difflib.get_close_matches(text.partition(":")[0], DATASETS, n=1)
    error = missing(Path(text))
    if near and "did you mean" not in error.fix:
        error = DataError(
            f"{text} is neither a data set's name nor a folder",
            error.why,
            f"did you mean {near[0]}? (the names: {', '.join(DATASETS)})",
            code=error.code,
            paths=error.paths,
        )
    return error


def _hold_out(
    found: Inventory, seed: int, val_fraction: float | None
) -> tuple[dict[SplitName, ArrayImages | FileList], list[str]]:
    splits, notes = dict(found.splits), []
    if "test" not in splits:
        if "val" in splits:
            splits["test"] = splits.pop("val")
            notes.append("there is no test split: the validation split takes its place")
        else:
            kept, out = holdout_indices(splits["train"].targets, TEST_FRACTION, seed + 1)
            splits["test"], splits["train"] = splits["train"].select(out), splits["train"].select(kept)
            notes.append(f"there is no test split: {TEST_FRACTION:.0%} of the images ({len(out):,}) become one")
    fraction = val_fraction
    if fraction is None:
        fraction = 0.0 if found.benchmark else VAL_FRACTION
    if "val" not in splits and fraction:
        kept, out = holdout_indices(splits["train"].targets, fraction, seed)
        if len(out):
            splits["val"], splits["train"] = splits["train"].select(out), splits["train"].select(kept)
            notes.append(f"{fraction:.0%} of the training images ({len(out):,}) are held out for validation")
    return splits, notes


def _as_dataset(part: ArrayImages | FileList) -> ImageDataset:
    if isinstance(part, ArrayImages):
        return part
    return FileImages(part.paths, part.targets, root=part.root)
