"""`split.csv`: every image of a run with its split, class, size in bytes and SHA-256, compared when the run resumes.

A folder that gained or lost images is split anew, and images that were trained on would be tested on. So a run whose
data changed is refused with the list of what changed; if the changes are accepted, every old image stays on its side
and new ones are trained on.
"""

import csv
import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from longtail._errors import DataError, counted
from longtail._files import csv_rows, from_cell, refuse_special, to_cell, whole_text_file
from longtail.class_counts import ClassCounts
from longtail.data import LongTailData
from longtail.data.images import ArrayImages, FileImages, ImageDataset
from longtail.data.splits import SPLITS

NAME = "split.csv"
COLUMNS = ("split", "path", "label", "size", "digest")
# Of versions that kept no digests.
_OLD_COLUMNS = ["split", "path", "label"]
# Of more changes of a kind, only the first are listed.
_SHOWN = 5


class ImageRecord(NamedTuple):
    """One line: an image by its path, or by its index in a named set."""

    split: str
    path: str
    label: str
    size: int
    digest: str


DataRecord = Mapping[tuple[str, str], ImageRecord]


def data_record(data: LongTailData) -> DataRecord:
    """Every image of the data. Images in memory go by split and index, files by their path alone."""
    found = {}
    for split in SPLITS:
        images = data.split(split)
        labels = (data.classes[k] for k in images.targets.tolist())
        for (path, size, digest), label in zip(_contents(images), labels, strict=True):
            found[_key(split, path, files=isinstance(images, FileImages))] = ImageRecord(
                split, path, label, size, digest
            )
    return found


def write_record(folder: Path, record: DataRecord) -> None:
    """Write `split.csv`."""
    with whole_text_file(folder / NAME) as out:
        rows = ((split, to_cell(path), to_cell(label), *rest) for split, path, label, *rest in record.values())
        csv_rows(out, [COLUMNS, *rows])


def read_record(folder: Path, *, files: bool) -> DataRecord | None:
    """Read `split.csv`; None if it is gone or of an older version, without digests."""
    file = folder / NAME
    try:
        with file.open(encoding="utf-8", errors="surrogateescape", newline="") as lines:
            rows = csv.DictReader(lines)
            if rows.fieldnames == _OLD_COLUMNS:
                return None
            if rows.fieldnames != list(COLUMNS):
                raise ValueError(f"its first line must be {','.join(COLUMNS)}")
            images = [
                ImageRecord(
                    row["split"], from_cell(row["path"]), from_cell(row["label"]), int(row["size"]), row["digest"]
                )
                for row in rows
            ]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError, csv.Error) as error:
        raise broken_record(file, error) from error
    return {_key(image.split, image.path, files=files): image for image in images}


def broken_record(file: Path, error: Exception) -> DataError:
    """`split.csv` that cannot be read."""
    return DataError(
        f"{file} is broken: {error}",
        "it says which images were trained on",
        "copy it again from where the run was made",
        code="broken-split",
        paths=[str(file)],
    )


def data_changes(old: DataRecord, new: DataRecord) -> list[str]:
    """What changed, one sentence a kind."""
    both = [(old[key], new[key]) for key in old if key in new]
    kinds = {
        "added": [image.path for key, image in new.items() if key not in old],
        "removed": [image.path for key, image in old.items() if key not in new],
        "of another class": [a.path for a, b in both if a.label != b.label],
        "with other content": [a.path for a, b in both if (a.size, a.digest) != (b.size, b.digest)],
    }
    if not any(kinds.values()):
        kinds["on another side"] = [a.path for a, b in both if a.split != b.split]
    return [
        f"{counted(len(paths), 'image')} {kind}: {', '.join(map(repr, paths[:_SHOWN]))}"
        + (f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else "")
        for kind, paths in kinds.items()
        if paths
    ]


def refuse_changes(data: str, folder: Path, changes: list[str]) -> None:
    """Refuse to resume on changed data."""
    if changes:
        raise DataError(
            f"{data} has changed since {folder} was started: {'; '.join(changes)}",
            "images that were trained on could be tested on",
            "restore the data, or go on with --accept-data-changes: old images stay on their side, new ones are "
            "trained on",
            code="data-changed",
        )


def keep_sides(data: LongTailData, old: DataRecord) -> LongTailData:
    """The data with every image of `old` on its old side, and new ones in train; named sets as they are."""
    parts = [data.split(split) for split in SPLITS]
    first = parts[0]
    if not isinstance(first, FileImages):
        return data
    paths = [path for part in parts if isinstance(part, FileImages) for path in part.paths]
    targets = np.concatenate([part.targets for part in parts if isinstance(part, FileImages)])
    everything = FileImages(paths, targets, root=first.root, size=first.size)
    sides = [old[key].split if (key := ("", path)) in old else "train" for path in paths]
    train, val, test = (everything.select([i for i, side in enumerate(sides) if side == name]) for name in SPLITS)
    counts = np.bincount(train.targets, minlength=len(data.classes)).tolist()
    return replace(data, train=train, val=val, test=test, class_counts=ClassCounts(counts))


def _key(split: str, path: str, *, files: bool) -> tuple[str, str]:
    return ("" if files else split, path)


def _contents(images: ImageDataset) -> Iterator[tuple[str, int, str]]:
    """Name, size and digest of each image."""
    if isinstance(images, FileImages):
        with ThreadPoolExecutor() as pool:
            files = (images.path(index) for index in range(len(images)))
            for path, (size, digest) in zip(images.paths, pool.map(_digest, files), strict=True):
                yield str(path), size, digest
        return
    for index in range(len(images)):
        pixels = images.images[index].tobytes() if isinstance(images, ArrayImages) else b""
        yield str(index), len(pixels), hashlib.sha256(pixels).hexdigest()


def _digest(file: Path) -> tuple[int, str]:
    try:
        refuse_special(file)
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
            return content.tell(), digest
    except OSError:
        return 0, ""  # it is left out where it is read, and said there
