"""The paper's tables and figures as data: `tables/NAME.yaml`, read without torch.

A file has parts, one for each table or figure of the paper that it covers; a part has data sets, metrics, and rows with
the paper's numbers in the order of the source: data set by data set, metric by metric, null where the paper has none. A
row without settings is a method of another paper, which is not run. `settings` are what `longtail train` takes, above
the recipe; with the quick budget, `quick` goes on top. A note is for the rows and data sets that match its patterns.
"""

import difflib
import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import yaml

from longtail._errors import UsageError
from longtail.training.settings import merge

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Entry:
    """One row of a table on one data set.

    Args:
        row: short name of the row, such as `cbn`.
        name: its name in the paper.
        data: the data set, as `longtail train` takes it.
        source: the place of its numbers in the paper, such as `table 2`.
        paper: accuracies in percent by metric; None where the paper has none.
        settings: settings of our run; None for a method that we do not run.
        quick: further settings with the quick budget.
        notes: footnotes.
        decimals: number of decimals in the source.
    """

    row: str
    name: str
    data: str
    source: str
    paper: Mapping[str, float | None]
    settings: Settings | None = None
    quick: Settings = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    decimals: int = 2

    @property
    def key(self) -> str:
        """`row@data`, unique within a source."""
        return f"{self.row}@{self.data}"

    def matches(self, pattern: str) -> bool:
        """Whether a pattern matches its row, its data set, its source or its key."""
        return any(fnmatch.fnmatchcase(name, pattern) for name in (self.row, self.data, self.source, self.key))


@dataclass(frozen=True)
class Table:
    """What `longtail reproduce NAME` runs: one or several tables of the paper that belong together."""

    name: str
    title: str
    entries: tuple[Entry, ...]

    @property
    def sources(self) -> list[str]:
        """The tables and figures of the paper that it covers."""
        return list(dict.fromkeys(entry.source for entry in self.entries))


def list_tables() -> list[str]:
    """The names, in the order of the paper."""
    return ["components", "mixtures", "backbones", "rebalancing", "datasets"]


def load_table(name: str) -> Table:
    """Read a table.

    Example:
        >>> load_table("components").entries[0].paper
        {'top1': 81.87}
    """
    if name not in list_tables():
        near = difflib.get_close_matches(name, list_tables(), n=1)
        raise UsageError(
            f"there is no table {name!r}",
            f"the names are {', '.join(list_tables())}",
            f"did you mean {near[0]}?" if near else "`longtail reproduce` lists them",
        )
    file = resources.files("longtail.reproduction") / "tables" / f"{name}.yaml"
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    entries = [entry for part in content["parts"] for entry in _entries(part)]
    return Table(name, content["title"], tuple(entries))


def _entries(part: Mapping[str, Any]) -> Iterator[Entry]:
    """The entries of a part, without those of methods that we do not run and that have no number."""
    metrics, notes = part["metrics"], part.get("notes", [])
    for row in part["rows"]:
        numbers = iter(row["paper"])
        for data in part["data"]:
            paper = {metric: next(numbers) for metric in metrics}
            ours = "settings" in row
            if not ours and all(value is None for value in paper.values()):
                continue
            yield Entry(
                row["key"],
                row["name"],
                data,
                part["source"],
                paper,
                merge(part.get("settings", {}), row["settings"]) if ours else None,
                part.get("quick", {}),
                tuple(note["text"] for note in notes if _concerns(note, row["key"], data)),
                part["decimals"],
            )


def _concerns(note: Mapping[str, Any], row: str, data: str) -> bool:
    def named(patterns: list[str], name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

    return named(note.get("rows", ["*"]), row) and named(note.get("data", ["*"]), data)
