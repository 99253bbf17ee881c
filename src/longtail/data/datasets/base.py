"""The contract of a named data set, and the registry.

A data set of another package joins through the entry-point group `longtail.datasets`.
"""

from pathlib import Path
from typing import Protocol

from longtail._registry import Registry
from longtail.data.inventory import Inventory
from longtail.data.sources import Report


class NamedDataset(Protocol):
    """A data set that is opened by its name."""

    def find(self, root: Path, imbalance_factor: float | None, seed: int) -> Inventory:
        """Find it below `root`, without the network; `imbalance_factor` defaults to the set's own."""
        ...

    def fetch(self, root: Path, report: Report) -> str:
        """Bring it to `root` from the first source that has it, and return that source's name."""
        ...


DATASETS = Registry[NamedDataset]("datasets")
