"""The front door: a name, a folder or a CSV into training, validation and test images.

DATA is one of

- a named benchmark, `cifar10-lt`; with an imbalance factor, `cifar10-lt:50`; with the folder it lies in,
  `imagenet-lt:/data/imagenet`; or with both, `cifar10-lt:50:/data`;
- a folder of class folders, or of `train`, `val` and `test` folders;
- a CSV with `path,label[,split]`.

Named sets are looked up in the root: the argument, else the environment variable `LONGTAIL_DATA`, else the
user's cache folder. Nothing is downloaded here.

    DATA → take_inventory → check_data (if asked) → split_inventory → LongTailData

The inventory is taken once: the same one is checked and split, so a large tree is walked a single time.

**Held-out images.** A benchmark is used as in its papers: all training images train, and there is a validation
split only if the benchmark has one or `val_fraction` asks for it. Of your own images, 10 % of the training split
is held out for validation, unless there is a validation split. Without a test split, the validation split takes
its place (and a new one is drawn from train); without either, 20 % of the images are held out for testing
first. Every draw is stratified, depends on the seed, and comes from train, never from test. A class of your own
images gives none to validation if it has fewer than 5 in train: it would lose a third of them or more, for an
accuracy that one image decides.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from longtail._errors import DataError, UsageError, counted
from longtail.class_counts import ClassCounts
from longtail.data.check import check_data
from longtail.data.csv_list import find_csv_list
from longtail.data.datasets import DATASETS
from longtail.data.folder import find_folder, missing, not_readable
from longtail.data.images import ArrayImages, FileImages, ImageDataset
from longtail.data.inventory import FileList, Inventory, Problem
from longtail.data.scan import scan_file
from longtail.data.splits import SplitName, holdout_indices

VAL_FRACTION, _TEST_FRACTION = 0.1, 0.2
VAL_SMALLEST = 5  # images of a class that gives some of them to validation

# Without a check, so many headers are read to know the typical size; a size that nobody knows is that of ImageNet.
_PEEKED, _USUAL_SIDE = 100, 224


@dataclass(frozen=True)
class LongTailData:
    """Images for training, validation and test, and what a trainer must know about them.

    Args:
        name: the data as the user named it.
        train: the training images.
        val: the validation images, drawn from train or given; of length 0 if there are none.
        test: the test images.
        classes: the class names, in the order of the labels.
        class_counts: the number of images of each class in `train`.
        mean: the mean of each channel, for values between 0 and 1.
        std: the standard deviation of each channel.
        in_channels: 3 for RGB, 1 for the grey sets.
        image_size: (height, width) if all images have the same size, else None. Of image files, only a check knows.
        typical_side: the median of the shorter sides of the training images.
        mirrored: pairs of classes that are mirror images of each other, if a check has found any.
        problems: what is wrong with the data.
        notes: how the layout was understood, and what was held out.
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
    typical_side: int = _USUAL_SIDE
    mirrored: tuple[tuple[str, str], ...] = ()
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
    val_smallest: int = VAL_SMALLEST,
    path_column: str | None = None,
    label_column: str | None = None,
    allow_empty: bool = False,
    ignore_unknown: bool = False,
    check: bool = False,
) -> LongTailData:
    """Open a data set; the module's docstring says what DATA may be and which images are held out.

    Args:
        data: a name, a folder or a CSV.
        root: the folder of the named sets.
        seed: the seed of the long-tailed subset and of the held-out images.
        val_fraction: the fraction of the training images to hold out for validation, 0 for none; defaults to the
            rule above. A validation split on disk stays as it is.
        val_smallest: of your own images, a class with fewer than so many gives none to validation.
        path_column: of a CSV, the name of the column of image files; defaults to its usual names, see `CsvTable`.
        label_column: of a CSV, the name of the column of classes; defaults to its usual names.
        allow_empty: leave out classes without a training image instead of stopping.
        ignore_unknown: leave out test images of classes that training does not have, instead of stopping.
        check: check every image first (see `check_data`): unreadable files are left out, and `problems` has what
            was found.

    Raises:
        DataError: the data is missing or cannot be used; its three lines say why and what to do.

    Example:
        >>> data = open_dataset("digits-lt:10")
        >>> list(data.class_counts)
        [120, 92, 71, 55, 43, 33, 25, 20, 15, 12]
    """
    inventory = take_inventory(
        data,
        root,
        seed,
        path_column=path_column,
        label_column=label_column,
        allow_empty=allow_empty,
        ignore_unknown=ignore_unknown,
    )
    if check:
        inventory = check_data(inventory).data
    return split_inventory(inventory, seed, val_fraction=val_fraction, val_smallest=val_smallest)


def take_inventory(
    data: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    seed: int = 0,
    *,
    path_column: str | None = None,
    label_column: str | None = None,
    allow_empty: bool = False,
    ignore_unknown: bool = False,
) -> Inventory:
    """Find what DATA names, as it is on disk, with nothing held out.

    Args:
        data: a name, a folder or a CSV.
        root: the folder of the named sets.
        seed: the seed of the long-tailed subset.
        path_column: of a CSV, the name of the column of image files; defaults to its usual names, see `CsvTable`.
        label_column: of a CSV, the name of the column of classes; defaults to its usual names.
        allow_empty: leave out classes without a training image instead of stopping.
        ignore_unknown: leave out test images of classes that training does not have, instead of stopping.
    """
    text = os.fspath(data)
    name, _, rest = text.partition(":")
    try:
        if name in DATASETS:
            factor, place = _parse(text, rest)
            return DATASETS[name].find(data_root(place or root), factor, seed)
        path = Path(text)
        if path.suffix.lower() == ".csv" or path.is_file():
            return find_csv_list(
                path,
                path_column=path_column,
                label_column=label_column,
                allow_empty=allow_empty,
                ignore_unknown=ignore_unknown,
            )
        if not path.exists() and os.sep not in text:
            raise _unknown_name(text)
        return find_folder(path, allow_empty=allow_empty, ignore_unknown=ignore_unknown)
    except OSError as error:
        raise not_readable(text, error) from error


def split_inventory(
    inventory: Inventory, seed: int = 0, *, val_fraction: float | None = None, val_smallest: int = VAL_SMALLEST
) -> LongTailData:
    """Hold out the validation and test images that are missing, and make data sets of all splits.

    Args:
        inventory: what was found.
        seed: the seed of the held-out images.
        val_fraction: as for `open_dataset`.
        val_smallest: as for `open_dataset`.
    """
    splits, notes = _hold_out(inventory, seed, val_fraction, 2 if inventory.benchmark else val_smallest)
    train = splits["train"]
    return LongTailData(
        name=inventory.name,
        train=_as_dataset(train),
        val=_as_dataset(splits["val"] if "val" in splits else train.select([])),
        test=_as_dataset(splits["test"]),
        classes=inventory.classes,
        class_counts=ClassCounts(np.bincount(train.targets, minlength=len(inventory.classes)).tolist()),
        mean=inventory.mean,
        std=inventory.std,
        in_channels=train.images.shape[3] if isinstance(train, ArrayImages) else 3,
        image_size=_common_size(inventory.splits.values()),
        typical_side=_typical_side(train),
        mirrored=inventory.mirrored,
        problems=inventory.problems,
        notes=(*inventory.notes, *notes),
    )


def hold_out_validation(data: LongTailData, fraction: float, seed: int = 0) -> LongTailData:
    """Data without validation images, some of its training images held out for that, as `val_fraction` would."""
    smallest = 2 if data.name.partition(":")[0] in DATASETS else VAL_SMALLEST
    kept, out = holdout_indices(data.train.targets, fraction, seed, smallest=smallest)
    train = data.train.select(kept)
    counts = np.bincount(train.targets, minlength=len(data.classes)).tolist()
    return replace(data, train=train, val=data.train.select(out), class_counts=ClassCounts(counts))


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder of the named sets: `root`, else `LONGTAIL_DATA`, else the user's cache folder."""
    place = root or os.environ.get("LONGTAIL_DATA")
    if place:
        return Path(place).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("longtail") / "data"


def _parse(text: str, rest: str) -> tuple[float | None, str]:
    """The imbalance factor and the folder in what follows a name: `factor`, `/path` or `factor:/path`."""
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
        "after the name comes the size of the largest class over that of the smallest, or the folder of the data",
        f"write {name}:100 or {name}:/path",
    )


def _unknown_name(text: str) -> DataError:
    """The error for a word that is neither a name nor a path."""
    import difflib

    near = difflib.get_close_matches(text.partition(":")[0], DATASETS, n=1)
    error = missing(Path(text))
    if near and "did you mean" not in error.fix:
        error = DataError(
            f"{text} is neither the name of a data set nor a folder",
            error.why,
            f"did you mean {near[0]}? (the names are {', '.join(DATASETS)})",
            code=error.code,
            paths=error.paths,
        )
    return error


def _hold_out(
    inventory: Inventory, seed: int, val_fraction: float | None, val_smallest: int
) -> tuple[dict[SplitName, ArrayImages | FileList], list[str]]:
    """The splits with those that are missing drawn from train, and a note for each draw."""
    splits, notes = dict(inventory.splits), []
    if "test" not in splits:
        if "val" in splits:
            splits["test"] = splits.pop("val")
            notes.append("there is no test split: the validation split takes its place")
        else:
            kept, out = holdout_indices(splits["train"].targets, _TEST_FRACTION, seed + 1)
            if not len(out):
                raise DataError(
                    f"{inventory.name} has one image of each class and no test split",
                    "with that image held out, nothing of its class would be left to learn from",
                    "add a second image to some class, or test images in test/CLASS/",
                    code="no-test",
                )
            splits["test"], splits["train"] = splits["train"].select(out), splits["train"].select(kept)
            notes.append(f"there is no test split: {_TEST_FRACTION:.0%} of the images ({len(out):,}) become one")
    fraction = val_fraction
    if fraction is None:
        fraction = 0.0 if inventory.benchmark else VAL_FRACTION
    if "val" not in splits and fraction:
        targets = splits["train"].targets
        kept, out = holdout_indices(targets, fraction, seed, smallest=val_smallest)
        small = len(np.unique(targets)) - len(np.unique(targets[out]))
        fewest = max(2, val_smallest)
        if len(out):
            splits["val"], splits["train"] = splits["train"].select(out), splits["train"].select(kept)
            held = f"{fraction:.0%} of the training images ({len(out):,}) are held out for validation"
            keep = "keep theirs and are" if small > 1 else "keeps its own and is"
            rest = f"; {counted(small, 'class')} with fewer than {fewest} {keep} not validated" if small else ""
            notes.append(held + rest)
        elif small:
            notes.append(f"no class has {fewest} training images: none are held out for validation")
    return splits, notes


def _common_size(parts: Iterable[ArrayImages | FileList]) -> tuple[int, int] | None:
    """The one (height, width) of all images; None if there are several, or if they are unknown."""
    found: set[tuple[int, int]] = set()
    for part in parts:
        if isinstance(part, ArrayImages):
            found.add((part.images.shape[1], part.images.shape[2]))
        elif part.sizes is None:
            return None
        else:
            found |= {(int(height), int(width)) for height, width in np.unique(part.sizes, axis=0)}
    return found.pop() if len(found) == 1 else None


def _typical_side(train: ArrayImages | FileList) -> int:
    if isinstance(train, ArrayImages):
        return int(min(train.images.shape[1:3]))
    sizes = train.sizes
    if sizes is None:
        some = train.select(np.unique(np.linspace(0, len(train) - 1, min(_PEEKED, len(train))).round()))
        scans = [scan_file(str(train.root / path)) for path in some.paths]
        sizes = np.array([(scan.height, scan.width) for scan in scans if not scan.error]).reshape(-1, 2)
    return int(np.median(sizes.min(axis=1))) if len(sizes) else _USUAL_SIDE


def _as_dataset(part: ArrayImages | FileList) -> ImageDataset:
    if isinstance(part, ArrayImages):
        return part
    return FileImages(part.paths, part.targets, root=part.root)
