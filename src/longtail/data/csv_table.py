"""A CSV as people have it: commas, semicolons or tabs, with or without a byte order mark, columns by many names.

The separator is the one of the first line. A column is found by the name that the user gives, else by its usual names
in `NAMES`, whatever their case, spaces, dots, dashes and underscores.
"""

import csv
import difflib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from longtail._errors import DataError, UsageError

# The usual names of each column; the first is ours, and wins where several are there.
NAMES: dict[str, tuple[str, ...]] = {
    "path": ("path", "filename", "file", "filepath", "imagepath", "image", "imagefile", "imagename", "img", "imgpath"),
    "label": ("label", "class", "classid", "classname", "category", "target", "labels"),
    "split": ("split", "subset", "set", "partition"),
    "prior": ("prior", "share", "probability", "frequency"),
}
_SEPARATORS = (",", ";", "\t", "|")
_WHY = {("path",): "it says where each image is", ("path", "label"): "each image needs its path and its label"}


class CsvTable:
    """The rows of a CSV, as they are asked for.

    Args:
        path: the file.
        chosen: the user's names for columns, by ours: `{"path": "Filename"}`.
        errors: that of `open`, for file names that are not text.

    Raises:
        OSError: it cannot be opened.
        DataError: it is no text with a line of columns.
    """

    def __init__(self, path: Path, chosen: dict[str, str | None] | None = None, *, errors: str = "strict") -> None:
        self.path, self._errors = path, errors
        self._chosen = {key: name for key, name in (chosen or {}).items() if name is not None}
        with path.open("rb") as file:
            start = file.read(3)
        # What spreadsheets call Unicode text is UTF-16.
        self._encoding = "utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"

    @cached_property
    def separator(self) -> str:
        """What most often stands between the columns of the first line."""
        try:
            with self.path.open(encoding=self._encoding, errors=self._errors, newline="") as lines:
                first = next(lines, "")
        except UnicodeError as error:
            raise self._broken(error) from error
        return max(_SEPARATORS, key=first.count)

    @cached_property
    def columns(self) -> list[str]:
        """The first line."""
        with self.path.open(encoding=self._encoding, errors=self._errors, newline="") as lines:
            try:
                first = next(csv.reader(lines, delimiter=self.separator), [])
            except (csv.Error, UnicodeError) as error:
                raise self._broken(error) from error
        return [name.strip() for name in first]

    def has(self, key: str) -> bool:
        """Whether there is a column of one of the names of `key`."""
        return self._find(key) is not None

    def column(self, key: str) -> int:
        """The number of the column that is `key` in `NAMES`.

        Raises:
            UsageError: the user named one that is not there.
            DataError: there is none, or several could be meant.
        """
        return self.find_columns(key)[0]

    def find_columns(self, *keys: str) -> list[int]:
        """The numbers of the columns that are `keys` in `NAMES`; see `column`."""
        found = [self._find(key) for key in keys]
        absent = [key for key, place in zip(keys, found, strict=True) if place is None]
        if absent:
            flags = " and ".join(f"--{key}-column" for key in absent if key in ("path", "label"))
            raise DataError(
                f"{self.path} has no column {' and no column '.join(map(repr, absent))}; "
                f"its first line is {self.separator.join(self.columns)!r}",
                _WHY.get(keys, "each line needs one"),
                f"make the first line {','.join(keys)}" + (f", or name the columns with {flags}" if flags else ""),
                code="missing-column",
                paths=[str(self.path)],
            )
        return [place for place in found if place is not None]

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """The number of each line that is not empty, and its cells, as many as there are columns."""
        width = len(self.columns)
        with self.path.open(encoding=self._encoding, errors=self._errors, newline="") as lines:
            reader = csv.reader(lines, delimiter=self.separator)
            try:
                next(reader, None)
                for cells in reader:
                    if any(cells):
                        yield reader.line_num, (cells + [""] * width)[: max(width, len(cells))]
            except (csv.Error, UnicodeError) as error:
                raise self._broken(error) from error

    def _find(self, key: str) -> int | None:
        chosen = self._chosen.get(key)
        if chosen is not None:
            if chosen not in self.columns:
                near = difflib.get_close_matches(chosen, self.columns, n=1)
                hint = f" (did you mean {near[0]!r}?)" if near else ""
                raise UsageError(
                    f"--{key}-column: {self.path} has no column {chosen!r}{hint}",
                    f"its first line is {self.separator.join(self.columns)!r}",
                    "name one of these",
                )
            return self.columns.index(chosen)
        plain = ["".join(c for c in name.lower() if c.isalnum()) for name in self.columns]
        found = [name for name in NAMES[key] if name in plain]
        if len(found) > 1 and found[0] != key and key != "split":
            raise DataError(
                f"{self.path} has several columns that may be the {key}: "
                f"{', '.join(self.columns[plain.index(name)] for name in found)}",
                "a wrong one would mean wrong labels" if key == "label" else "only one of them can be right",
                f"name it with --{key}-column",
                code="missing-column",
                paths=[str(self.path)],
            )
        return plain.index(found[0]) if found else None

    def _broken(self, error: Exception) -> DataError:
        return DataError(
            f"{self.path} cannot be read as a CSV: {error}",
            "it says which images there are, and their labels",
            "save it as UTF-8 text, separated by commas",
            code="bad-csv",
            paths=[str(self.path)],
        )
