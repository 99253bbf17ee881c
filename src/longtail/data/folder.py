"""Folders of images: class folders, or train/val/test folders of class folders.

    birds/robin/1.jpg                birds/train/robin/1.jpg
    birds/wren/2.jpg                 birds/test/robin/2.jpg

The class of an image is the first folder below its split; deeper folders belong to it. Split folders are
known by name (`train`, `val`, `test` and their usual spellings), also when the user points one level too high
or into one of them.
"""

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

from longtail._errors import DataError
from longtail.data.index_classes import index_classes
from longtail.data.inventory import Inventory, counted
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


def find_folder(path: Path, *, allow_empty: bool = False, ignore_unknown: bool = False) -> Inventory:
    """Find the splits, classes and images below a folder.

    Args:
        path: a folder of class folders, or of `train`, `val` and `test` folders of them.
        allow_empty: leave classes without a training image out instead of stopping.
        ignore_unknown: leave out test images of classes that training does not have, instead of stopping.
    """
    if not path.exists():
        raise missing(path)
    base, notes = _step_to_the_splits(path)
    splits = _split_folders(base)
    if "train" not in splits and splits:
        found = ", ".join(f"{folder.name}/" for folder in splits.values())
        raise DataError(
            f"{path} has {found} but no train/",
            "there is nothing to learn from",
            f"put the training images in {base / 'train'}",
            code="no-train",
        )
    unused = sorted(set(_subfolders(base)) - {folder.name for folder in splits.values()}) if splits else []
    if unused:
        notes.append(f"left out, beside the splits: {', '.join(f'{name}/' for name in unused)}")
    splits = splits or {"train": base}
    files: dict[SplitName, list[tuple[str, str]]] = {}
    empty: list[str] = []
    for split, folder in splits.items():
        groups = {name: list(images_below(folder / name)) for name in _subfolders(folder)}
        if not any(groups.values()):
            _refuse_flat(folder)
        if split == "train":
            empty = [name for name, images in groups.items() if not images]
        stray = _count_images(folder)
        if stray:
            notes.append(f"left out, in no class folder: {counted(stray, 'image')} in {folder} itself")
        prefix = folder.relative_to(base)
        files[split] = [(str(prefix / name / image), name) for name, images in groups.items() for image in images]
    return index_classes(
        str(path),
        base,
        files,
        empty=empty,
        allow_empty=allow_empty,
        ignore_unknown=ignore_unknown,
        notes=notes,
    )


def missing(path: Path) -> DataError:
    """The error for a path that does not exist: where we looked, and the nearest name that does."""
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


def _step_to_the_splits(path: Path) -> tuple[Path, list[str]]:
    """From where the user points to the folder that holds the splits or the classes."""
    inside = SPLIT_WORDS.get(path.absolute().name.lower())
    beside = _split_folders(path.absolute().parent)
    if inside and "train" in beside and len(beside) > 1 and not _split_folders(path):
        others = ", ".join(f"{folder.name}/" for folder in beside.values())
        return path.absolute().parent, [f"{path} is one of the splits {others}: all of them are used"]
    base = path
    while not _split_folders(base):
        folders = _subfolders(base)
        # One folder that holds only folders is a wrapper (birds/birds/robin/1.jpg), not a class.
        if len(folders) != 1 or _count_images(base) or _count_images(base / folders[0]):
            break
        if not _subfolders(base / folders[0]):
            break
        base = base / folders[0]
    return base, [f"the classes are one level deeper, in {base}"] if base != path else []


def _split_folders(path: Path) -> dict[SplitName, Path]:
    """The folders with the name of a split, by split.

    A class may be called "train" too: beside folders of other names, one counts as a split only if one of
    them holds folders, as splits do and classes rarely.
    """
    found: dict[SplitName, Path] = {}
    others = False
    for name in _subfolders(path):
        split = SPLIT_WORDS.get(name.lower())
        if split and split not in found:
            found[split] = path / name
        else:
            others = True
    if others and not any(_subfolders(folder) for folder in found.values()):
        return {}
    return {split: found[split] for split in SPLITS if split in found}


def _refuse_flat(folder: Path) -> None:
    images = _count_images(folder)
    if images:
        parent = folder.absolute().parent
        classes = sum(_count_images(parent / name) > 0 for name in _subfolders(parent))
        what = f"{folder} holds {counted(images, 'image')} and no class folders"
        hint = f"; {parent} has {classes} class folders" if classes > 1 else ""
    else:
        what, hint = f"{folder} holds no images", ""
    raise DataError(
        what,
        f"the folder of an image is its class{hint}",
        f"use {folder}/CLASS/image.jpg, or {folder}/train/CLASS/image.jpg with val/ and test/ beside train/, "
        "or a CSV with path,label",
        code="flat-folder" if images else "no-images",
        paths=[str(folder)],
    )


def _subfolders(path: Path) -> list[str]:
    if not path.is_dir():
        return []
    with os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not _hidden(entry.name))


def images_below(folder: Path) -> Iterator[str]:
    """The images below a folder, at any depth, relative to it, in the order of their names."""
    for inner, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _hidden(name))
        prefix = os.path.relpath(inner, folder)
        for name in sorted(filter(_is_image, names)):
            yield name if prefix == "." else f"{prefix}{os.sep}{name}"


def _count_images(folder: Path) -> int:
    """The images in a folder itself."""
    with os.scandir(folder) as entries:
        return sum(_is_image(entry.name) for entry in entries)


def _is_image(name: str) -> bool:
    return not _hidden(name) and name.rpartition(".")[2].lower() in IMAGE_ENDINGS


def _hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"
