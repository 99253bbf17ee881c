"""Write a file whole or not at all: to a draft beside it, flushed to disk, then renamed."""

import csv
import io
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from longtail._errors import DataError

# What a spreadsheet takes for a formula, and the quote that says it is none.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "'")


def is_special(file: str | os.PathLike[str]) -> bool:
    """Whether it is a pipe, socket or device, which might never give an end."""
    try:
        mode = Path(file).stat().st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def refuse_special(file: str | os.PathLike[str]) -> None:
    """Raise an `OSError` instead of waiting for what is no file."""
    if is_special(file):
        raise OSError("it is a pipe, socket or device, no file")


@contextmanager
def whole_file(file: Path, *, keep: Path | None = None) -> Iterator[BinaryIO]:
    """Open a draft that replaces `file` when the context ends without an exception.

    At every moment `file` is the old one or the new one, complete. A pipe or device, such as /dev/stdout, is written to
    and stays what it is.

    Args:
        file: the file to write.
        keep: where to keep the old file, if there is one.

    Raises:
        DataError: there is no space, or no permission to write; the old file is untouched.
    """
    if is_special(file):
        with _named_errors(file), file.open("wb") as out:
            yield out
        return
    draft = file.with_name(f".{file.name}.tmp")  # always the same, so that killed processes leave at most one
    with _named_errors(file), _removed_on_error(draft):
        with draft.open("wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        if keep is not None and file.exists():
            keep.unlink(missing_ok=True)
            os.link(file, keep)
        draft.replace(file)
        _sync_folder(file.parent)


@contextmanager
def _removed_on_error(draft: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


@contextmanager
def _named_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write {file}: {error.strerror}",
            "what was there before is untouched",
            f"check the space and the permissions of {file.parent}, then try again",
            code="cannot-write",
            paths=[str(file)],
        ) from error


@contextmanager
def whole_text_file(file: Path, *, errors: str = "surrogateescape") -> Iterator[TextIO]:
    """As `whole_file`, for text in UTF-8; `errors` is that of `open`, for file names that are not text."""
    with whole_file(file) as out:
        text = io.TextIOWrapper(out, encoding="utf-8", errors=errors, newline="")
        try:
            yield text
        finally:
            text.flush()
            text.detach()


def csv_rows(out: TextIO, rows: Iterable[Sequence[object]]) -> None:
    """Write rows of a CSV, lines ended by a line feed; a carriage return in a cell is quoted, so that it is read back.

    The standard writer quotes only the characters of its own line end.
    """
    plain = csv.writer(out, lineterminator="\n")
    quoted = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in rows:
        (quoted if any(isinstance(cell, str) and "\r" in cell for cell in row) else plain).writerow(row)


def to_cell(text: str) -> str:
    """A text as the cell of a CSV that a spreadsheet takes for text, too: one that looks like a formula gets a quote.

    Example:
        >>> to_cell("=cmd()"), to_cell("'tis"), to_cell("wren")
        ("'=cmd()", "''tis", 'wren')
    """
    return f"'{text}" if text.startswith(_FORMULAS) else text


def from_cell(cell: str) -> str:
    """The text that `to_cell` made a cell of."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULAS) else cell


def write_text(file: Path, text: str, *, errors: str = "surrogateescape") -> None:
    """Write `text`, whole or not at all."""
    with whole_text_file(file, errors=errors) as out:
        out.write(text)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, each flushed to disk: a file in a folder that is lost is lost too."""
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for place in reversed(new):
        _sync_folder(place.parent)


def _sync_folder(folder: Path) -> None:
    """Flush the rename itself to disk, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
