"""Write a file whole or not at all: beside its place, forced to disk, then renamed into it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from longtail._errors import DataError


def write_whole(file: Path, write: Callable[[BinaryIO], object], *, keep: Path | None = None) -> None:
    """Let `write` fill a new file, then put it in the place of `file`.

    Whatever happens meanwhile, `file` is the old one or the new one, complete.

    Args:
        file: the place.
        write: takes the open file.
        keep: where the old file, if there is one, stays.
    """
    draft = file.with_name(f".{file.name}.tmp")
    try:
        with draft.open("wb") as out:
            write(out)
            out.flush()
            os.fsync(out.fileno())
        if keep is not None and file.exists():
            keep.unlink(missing_ok=True)
            os.link(file, keep)
        draft.replace(file)
        _sync_folder(file.parent)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise DataError(
            f"cannot write {file}: {error.strerror}",
            "what was there before is untouched",
            f"make room in {file.parent}, then resume",
            code="cannot-write",
            paths=[str(file)],
        ) from error
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_text(file: Path, text: str) -> None:
    """Write `text` as UTF-8, whole or not at all."""
    write_whole(file, lambda out: out.write(text.encode("utf-8", errors="surrogateescape")))


def _sync_folder(folder: Path) -> None:
    """Force the renaming itself to disk, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
