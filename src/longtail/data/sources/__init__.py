"""Where data sets come from: downloads, package registries, archives.

Nothing here runs unless the user asked for a fetch.
"""

import errno
import shutil
from pathlib import Path
from typing import Protocol

from longtail._errors import DataError

# What the system says when a disk does not take what is written.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)


class SourceError(Exception):
    """A source did not answer or gave something else than asked for; the next one is tried."""


class Report(Protocol):
    """Who is told about the progress of a fetch."""

    def say(self, message: str) -> None:
        """Tell what is being done."""
        ...

    def advance(self, done: int, total: int | None) -> None:
        """Tell how many bytes of the present file are done."""
        ...


class Silence:
    """A report that nobody reads."""

    def say(self, message: str) -> None:
        """Tell nobody."""

    def advance(self, done: int, total: int | None) -> None:
        """Tell nobody."""


def refuse_full_disk(root: Path, size: int) -> None:
    """Make the folder `root`, and stop if it has not `size` bytes of room."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(root).free
    except OSError as error:
        raise disk_error(root, error) from error
    if free < size:
        raise DataError(
            f"{root} has {free / 1e6:.0f} MB free, and {size / 1e6:.0f} MB are needed",
            "half a data set is of no use",
            "make room, or name another folder with --root or LONGTAIL_DATA",
            code="no-space",
            paths=[str(root)],
        )


def disk_error(path: Path, error: OSError) -> DataError:
    """The error for a disk that does not take what is written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return DataError(
        f"{path}: {'no space is left on the disk' if full else error.strerror}",
        "the data could not be written",
        "make room, or name another folder with --root or LONGTAIL_DATA",
        code="no-space" if full else "not-writable",
        paths=[str(path)],
    )
