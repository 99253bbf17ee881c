"""Folders of images: class folders, or train/val/test folders of class folders.

    birds/robin/1.jpg                birds/train/robin/1.jpg
    birds/wren/2.jpg                 birds/test/robin/2.jpg

The class of an image is the first folder below its split; deeper folders belong to it. Split folders are
recognised by name (`train`, `val`, `test` and their usual spellings), also when the user points one level too
high or into one of them. Every folder is listed once, however many questions are asked about it.
"""

import contextlib
import difflib
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

from longtail._errors import DataError, counted
from longtail._files import is_special
from longtail.data.index_classes import index_classes
from longtail.data.inventory import Inventory
from longtail.data.splits import SPLITS, SplitName

IMAGE_ENDINGS = frozenset(
    ("jpg", "jpeg", "jfif", "png", "webp", "bmp", "gif", "tif", "tiff", "ppm", "pgm", "pbm", "jp2", "avif")
)
SPLIT_WORDS: dict[str, SplitName] = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}


SPECIAL, LINK = "special", "link"
_ENDINGS_SHOWN = 5


class Folder:
    """A folder that is listed once, when it is first asked; hidden files and folders do not count.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _listing(self) -> tuple[list[str], list[str], Counter[str]]:
        folders: list[str] = []
        images: list[str] = []
        others: Counter[str] = Counter()
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.startswith(".") or entry.name == "__MACOSX":
                    continue
                if entry.is_dir():
                    folders.append(entry.name)
                elif entry.name.rpartition(".")[2].lower() in IMAGE_ENDINGS:
                    # A pipe would be waited for; a link that leads nowhere is a broken image.
                    if _is_special(entry):
                        others[SPECIAL] += 1
                    else:
                        images.append(entry.name)
                else:
                    others[f".{entry.name.rpartition('.')[2].lower()}" if "." in entry.name else "no ending"] += 1
        return sorted(folders), sorted(images), others

    @cached_property
    def folders(self) -> dict[str, "Folder"]:
        """The folders in it, by name."""
        return {name: Folder(self.path / name) for name in self._listing[0]}

    @property
    def images(self) -> list[str]:
        """The names of the images in it."""
        return self._listing[1]

    def others_below(self) -> Counter[str]:
        """What is no image, at any depth, by the endings of the names; or as `SPECIAL` or `LINK`."""
        found = Counter(self._listing[2])
        for folder in self.folders.values():
            found += Counter({LINK: 1}) if folder.path.is_symlink() else folder.others_below()
        return found

    @property
    def own_special(self) -> int:
        """How many pipes, sockets and devices in it itself have the names of images."""
        return self._listing[2][SPECIAL]

    def images_below(self) -> Iterator[str]:
        """The images at any depth, relative to this folder, in the order of their names."""
        yield from self.images
        for name, folder in self.folders.items():
            if not folder.path.is_symlink():  # it may lead back up
                yield from (f"{name}{os.sep}{image}" for image in folder.images_below())


def _left_out(folder: Folder, classes: Iterable[Folder]) -> list[str]:
    """What is not among the images of the classes, in words."""
    others = sum((inner.others_below() for inner in classes), Counter[str]())
    others[SPECIAL] += folder.own_special
    notes = []
    if special := others.pop(SPECIAL, 0):
        kinds = "pipe, socket or device" if special == 1 else "pipes, sockets or devices"
        notes.append(f"left out, no files: {special:,} {kinds} in {folder.path}")
    if links := others.pop(LINK, 0):
        notes.append(f"left out, not followed: {counted(links, 'link')} to folders within classes in {folder.path}")
    if others:
        endings = ", ".join(f"{count:,} {ending}" for ending, count in others.most_common(_ENDINGS_SHOWN))
        rest = ", ..." if len(others) > _ENDINGS_SHOWN else ""
        files = counted(others.total(), "file")
        notes.append(f"left out, no images by their names: {files} in {folder.path} ({endings}{rest})")
    return notes


def _is_special(entry: "os.DirEntry[str]") -> bool:
    try:
        return not stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return False


def find_folder(path: Path, *, allow_empty: bool = False, ignore_unknown: bool = False) -> Inventory:
    """Find the splits, classes and images below a folder.

    Args:
        path: a folder of class folders, or of `train`, `val` and `test` folders of them.
        allow_empty: leave out classes without a training image instead of stopping.
        ignore_unknown: leave out test images of classes that training does not have, instead of stopping.
    """
    if not path.exists():
        raise missing(path)
    base, notes = _find_base(Folder(path))
    splits = _split_folders(base)
    if "train" not in splits and splits:
        raise DataError(
            f"{path} has {_slashed(splits.values())} but no train/",
            "there is nothing to learn from",
            f"put the training images in {base.path / 'train'}",
            code="no-train",
        )
    unused = base.folders.keys() - splits.values() if splits else ()
    if unused:
        notes.append(f"left out, beside the splits: {_slashed(sorted(unused))}")
    files: dict[SplitName, list[tuple[str, str]]] = {}
    empty: list[str] = []
    for split, name in (splits or {"train": ""}).items():
        folder = base.folders[name] if name else base
        classes = {label: list(inner.images_below()) for label, inner in folder.folders.items()}
        if not any(classes.values()):
            raise _without_classes(folder)
        if split == "train":
            empty = [label for label, images in classes.items() if not images]
        notes += _left_out(folder, folder.folders.values())
        if folder.images:
            notes.append(
                f"left out, in no class folder: {counted(len(folder.images), 'image')} in {folder.path} itself"
            )
        prefix = f"{name}{os.sep}" if name else ""
        files[split] = [
            (f"{prefix}{label}{os.sep}{image}", label) for label, images in classes.items() for image in images
        ]
    return index_classes(
        str(path),
        base.path,
        files,
        empty=empty,
        allow_empty=allow_empty,
        ignore_unknown=ignore_unknown,
        notes=notes,
    )


def missing(path: Path) -> DataError:
    """The error for a path that does not exist: where we looked, and the nearest name that does."""
    if is_special(path):
        return DataError(
            f"{path} is a pipe, socket or device",
            "it might never end",
            "write what it gives into a file, and name that",
            code="no-file",
            paths=[str(path)],
        )
    parent = path.absolute().parent
    while not parent.is_dir():
        parent = parent.parent
    near = difflib.get_close_matches(path.name, [entry.name for entry in parent.iterdir()], n=1)
    return DataError(
        f"{path} does not exist",
        f"looked from {Path.cwd()}",
        f"did you mean {parent / near[0]}?" if near else f"check the path; {parent} exists",
        code="missing-folder",
        paths=[str(path)],
    )


def not_readable(path: str, error: OSError) -> DataError:
    """The error for what the system does not let us read."""
    place = str(error.filename or path)
    return DataError(
        f"{place} cannot be read: {error.strerror or error}",
        "the images behind it would be missing",
        "check the path and its permissions",
        code="not-readable",
        paths=[place],
    )


def _find_base(given: Folder) -> tuple[Folder, list[str]]:
    """From where the user points to the folder that holds the splits or the classes."""
    place = given.path.absolute()
    if place.name.lower() in SPLIT_WORDS and not _split_folders(given):
        parent = Folder(place.parent)
        if place.name in parent.folders:
            parent.folders[place.name] = given  # it is listed already
        beside = _split_folders(parent)
        if "train" in beside and len(beside) > 1:
            return parent, [f"{given.path} is one of the splits {_slashed(beside.values())}: all of them are used"]
    base = given
    while not _split_folders(base) and len(base.folders) == 1:
        (inner,) = base.folders.values()
        # One folder that holds only folders is a wrapper (birds/birds/robin/1.jpg), not a class.
        if base.images or inner.images or not inner.folders:
            break
        base = inner
    return base, [f"the classes are one level deeper, in {base.path}"] if base is not given else []


def _split_folders(base: Folder) -> dict[SplitName, str]:
    """The name of each split's folder.

    A class may be called "train" too: beside folders of other names, one counts as a split only if one of
    them holds folders, as splits do and classes rarely.
    """
    found: dict[SplitName, str] = {}
    for name in base.folders:
        split = SPLIT_WORDS.get(name.lower())
        if split:
            found.setdefault(split, name)
    others = len(base.folders) > len(found)
    if others and not any(base.folders[name].folders for name in found.values()):
        return {}
    return {split: found[split] for split in SPLITS if split in found}


def _without_classes(folder: Folder) -> DataError:
    """The error for a folder without class folders that hold images."""
    path, hint = folder.path, ""
    if folder.images:
        parent = Folder(path.absolute().parent)
        with contextlib.suppress(OSError):  # it is a hint alone, and a folder beside it may be somebody else's
            classes = sum(bool(beside.images) for beside in parent.folders.values())
            hint = f"; {parent.path} has {classes} class folders" if classes > 1 else ""
    images = counted(len(folder.images), "image")
    return DataError(
        f"{path} holds {images} and no class folders" if folder.images else f"{path} holds no images",
        f"the folder of an image is its class{hint}",
        f"use {path}/CLASS/image.jpg, or {path}/train/CLASS/image.jpg with val/ and test/ beside train/, "
        "or a CSV with path,label",
        code="flat-folder" if folder.images else "no-images",
        paths=[str(path)],
    )


def _slashed(names: Iterable[str]) -> str:
    return ", ".join(f"{name}/" for name in names)
