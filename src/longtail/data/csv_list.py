"""Lists of images: a user's CSV, and the `path label` lists of the benchmarks.

A CSV has a header with `path`, `label` and, optionally, `split` (train, val or test; train if empty), or other names
for these; see `CsvTable`. Paths are relative to the CSV's folder. A list has one `path label` per line; labels are
numbers from 0.
"""

import difflib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from longtail._errors import DataError, counted
from longtail.data.csv_table import CsvTable
from longtail.data.folder import SPLIT_WORDS, missing, not_readable
from longtail.data.index_classes import index_classes
from longtail.data.inventory import FileList, Inventory
from longtail.data.splits import SPLITS, SplitName


def find_csv_list(
    path: Path,
    *,
    path_column: str | None = None,
    label_column: str | None = None,
    allow_empty: bool = False,
    ignore_unknown: bool = False,
) -> Inventory:
    """Find the images that a CSV with the columns `path,label[,split]` lists.

    Args:
        path: the file.
        path_column: the name of the column of image files; defaults to its usual names.
        label_column: the name of the column of classes; defaults to its usual names.
        allow_empty: leave out classes without a training image instead of stopping.
        ignore_unknown: leave out test images of classes that training does not have, instead of stopping.
    """
    if not path.is_file():
        raise missing(path)
    files: dict[SplitName, list[tuple[str, str]]] = {split: [] for split in SPLITS}
    table = CsvTable(path, {"path": path_column, "label": label_column})
    image_at, label_at = table.find_columns("path", "label")
    split_at = table.column("split") if table.has("split") else None
    bad: list[tuple[int, str, str]] = []
    for line, row in table.rows():
        image, label = row[image_at].strip(), row[label_at].strip()
        if not image or not label:
            bad.append((line, "needs a path and a label", f"got {image!r} and {label!r}"))
            continue
        word = (row[split_at].strip() if split_at is not None else "").lower() or "train"
        if word not in SPLIT_WORDS:
            near = difflib.get_close_matches(word, SPLIT_WORDS, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            bad.append((line, "has an unknown split", f"got {word!r}{hint}; use train, val or test"))
            continue
        files[SPLIT_WORDS[word]].append((image, label))
    if bad:
        line, rule, got = bad[0]
        more = ", ".join(str(number) for number, _, _ in bad[1:6]) + (", ..." if len(bad) > 6 else "")
        others = f"; {counted(len(bad) - 1, 'more bad line')}: {more}" if more else ""
        raise _bad_line(path, line, rule, got + others)
    refuse_missing_images(path, path.parent, [image for part in files.values() for image, _ in part])
    used = {split: part for split, part in files.items() if part}
    return index_classes(str(path), path.parent, used, allow_empty=allow_empty, ignore_unknown=ignore_unknown)


def read_list(path: Path, root: Path, num_classes: int) -> FileList:
    """Read a list of `path label` lines; every image must be there and every label below `num_classes`."""
    paths: list[str] = []
    targets: list[int] = []
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not text in UTF-8: {error}",
            "it says which images there are, and their labels",
            "save it as UTF-8",
            code="bad-list",
            paths=[str(path)],
        ) from error
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        image, _, label = line.strip().rpartition(" ")
        if not image or "\0" in image or not (label.isascii() and label.isdecimal() and len(label) < 10):
            raise _bad_line(path, number, "must be 'path label'", f"got {line.strip()!r}")
        if int(label) >= num_classes:
            rule = f"must have a label of 0 to {num_classes - 1}"
            raise _bad_line(path, number, rule, f"got {label}", code="label-out-of-range")
        paths.append(image.strip())
        targets.append(int(label))
    refuse_missing_images(path, root, paths)
    return FileList(root, tuple(paths), np.array(targets, dtype=np.int64))


def refuse_missing_images(source: Path, root: Path, images: Sequence[str]) -> None:
    """Raise if a list names an image that does not exist."""
    present: dict[str, frozenset[str]] = {}  # listing each folder is faster than asking for each file
    absent = []
    for image in images:
        folder, _, name = image.replace(os.sep, "/").rpartition("/")
        if folder not in present:
            present[folder] = _names(root / folder)
        if name not in present[folder]:
            absent.append(image)
    if absent:
        raise DataError(
            f"{source} names {counted(len(absent), 'image')} that cannot be found, for example {absent[0]}",
            f"the paths are relative to {root}",
            "put the images there, or correct the list",
            code="missing-image",
            paths=absent,
        )


def _names(folder: Path) -> frozenset[str]:
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries if entry.is_file())
    except PermissionError as error:
        raise not_readable(str(folder), error) from error
    except (OSError, ValueError):  # there is no such folder, or it cannot have this name
        return frozenset()


def _bad_line(path: Path, line: int, rule: str, got: str, code: str = "bad-line") -> DataError:
    return DataError(
        f"line {line} of {path} {rule}, {got}",
        "a wrong line would mean a wrong label in training",
        "correct the line",
        code=code,
        paths=[str(path)],
    )
