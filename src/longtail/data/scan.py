"""Scan many image files: what each one is, whether it can be read, and which are identical.

The header alone has format, mode and size; a full scan decodes every pixel, which finds truncated files. Files
are identical if their bytes are: only files of equal length are hashed.
"""

import hashlib
import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from longtail._files import refuse_special

T = TypeVar("T")
Progress = Callable[[int, int], None]

# Below this number of files, starting processes takes longer than it saves.
_ALONE = 4_000
_CHUNK = 500
_ORIENTATION = 0x0112  # EXIF's tag; 1 is upright, and 5 to 8 lie on their side


class FileScan(NamedTuple):
    """The result for one file; `error` is empty if it could be read; width and height are upright."""

    error: str
    mode: str = ""
    width: int = 0
    height: int = 0
    rotated: bool = False
    length: int = 0


def scan_file(path: str, full: bool = False) -> FileScan:
    """Read the header of an image file, and decode every pixel if `full`."""
    from PIL import Image

    from longtail.data.decode_image import UNREADABLE, decode_image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's warnings about large images and odd EXIF
            refuse_special(path)
            with Image.open(path) as image:
                # Asking a PNG for EXIF that is not at its start would decode all of it.
                known = "exif" in image.info or image.format == "TIFF"
                turn = image.getexif().get(_ORIENTATION, 1) if known else 1
                size = image.size[::-1] if turn in range(5, 9) else image.size
                found = FileScan("", image.mode, *size, turn in range(2, 9), Path(path).stat().st_size)
            if full:
                decode_image(path)
        return found
    except UNREADABLE as error:
        return FileScan(str(error) or type(error).__name__)


def scan_files(paths: Sequence[str], *, full: bool = False, progress: Progress | None = None) -> list[FileScan]:
    """Scan every file, on all processors if there are many."""
    return on_all_processors(_scan_in_full if full else scan_file, paths, decode=full, progress=progress)


def same_files(paths: Sequence[str], lengths: Sequence[int], progress: Progress | None = None) -> list[list[int]]:
    """Groups of two or more files with the same bytes, as indices into `paths`."""
    often = Counter(lengths)
    asked = [i for i, length in enumerate(lengths) if often[length] > 1 and length > 0]
    groups: dict[str, list[int]] = defaultdict(list)
    digests = on_all_processors(_digest, [paths[i] for i in asked], progress=progress)
    for i, digest in zip(asked, digests, strict=True):
        if digest:
            groups[digest].append(i)
    return [group for group in groups.values() if len(group) > 1]


def _scan_in_full(path: str) -> FileScan:
    return scan_file(path, full=True)


def _digest(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError:
        return ""


def on_all_processors(
    work: Callable[[str], T], paths: Sequence[str], *, decode: bool = False, progress: Progress | None = None
) -> list[T]:
    """Do `work` for every file, on all processors if there are many files.

    Args:
        work: a function of a module, so that it can be sent to other processes.
        paths: the files.
        decode: whether `work` decodes images, so that further processes pay for fewer files.
        progress: called with the number of files done and the number of all.
    """
    results: list[T] = []
    for part in _parts(work, paths, min(_ALONE, 100) if decode else _ALONE):
        results += part
        if progress is not None:
            progress(len(results), len(paths))
    return results


def _parts(work: Callable[[str], T], paths: Sequence[str], alone: int) -> Iterator[list[T]]:
    processes = min(os.cpu_count() or 1, 16)
    # Several chunks per process, so that none is idle for long at the end.
    size = max(1, min(_CHUNK, len(paths) // (4 * processes)))
    chunks = [paths[start : start + size] for start in range(0, len(paths), size)]
    if len(paths) < alone or processes == 1:
        yield from (_apply(work, chunk) for chunk in chunks)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(_apply, [work] * len(chunks), chunks)


def _apply(work: Callable[[str], T], chunk: Sequence[str]) -> list[T]:
    return [work(path) for path in chunk]
