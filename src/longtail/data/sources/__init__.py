"""Where data sets come from: downloads, package registries, archives.

Nothing here runs unless the user asks for a fetch.
"""

import errno
import shutil
from pathlib import Path
from typing import Protocol

from longtail._errors import DataError

# The system's errors when a write to disk fails.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)


class SourceError(Exception):
    """A source did not answer, or sent something else; the next one is tried."""


class Report(Protocol):
    """Shows the progress of a fetch."""

    def say(self, message: str) -> None:
        """Show what is being done."""
        ...

    def advance(self, done: int, total: int | None) -> None:
        """Show how many bytes of the current file are done."""
        ...


def refuse_full_disk(root: Path, size: int) -> None:
    """Make the folder `root`, and raise unless it has `size` bytes of free space."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(root).free
    except OSError as error:
        raise disk_error(root, error) from error
    if free < size:
        raise DataError(
            f"{root} has {free / 1e6:,.0f} MB of free space, but {size / 1e6:,.0f} MB are needed",
            "part of a data set is of no use",
            "free some space, or choose another folder with --root or LONGTAIL_DATA",
            code="no-space",
            paths=[str(root)],
        )


def disk_error(path: Path, error: OSError) -> DataError:
    """The error for a failed write to disk."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    fix = "free some space" if full else "check the permissions"
    return DataError(
        f"{path} cannot be written: {'no space is left on the disk' if full else error.strerror}",
        "the data set is not complete without it",
        f"{fix}, or choose another folder with --root or LONGTAIL_DATA",
        code="no-space" if full else "not-writable",
        paths=[str(path)],
    )
