"""Read `metrics.csv`, the numbers of each epoch of a run."""

import csv
import os
from pathlib import Path


def read_metrics(file: str | os.PathLike[str]) -> list[dict[str, float | None]]:
    """The rows of `metrics.csv` in order; None where a cell is empty, since not every row has every number.

    Raises:
        ValueError: a cell is not a number, or there is no epoch in a line.
    """
    rows: list[dict[str, float | None]] = []
    with Path(file).open(encoding="utf-8", newline="") as source:
        reader = csv.DictReader(source)
        for line in reader:
            row: dict[str, float | None] = {}
            for name, cell in line.items():
                try:
                    row[name] = float(cell) if cell else None
                except (TypeError, ValueError) as error:
                    raise ValueError(
                        f"{file}, line {reader.line_num}: {name} must be a number or empty, got {cell!r}; "
                        "the file may have been edited or truncated"
                    ) from error
            if row.get("epoch") is None:
                raise ValueError(f"{file}, line {reader.line_num}: it names no epoch; the file may have been edited")
            rows.append(row)
    return rows
