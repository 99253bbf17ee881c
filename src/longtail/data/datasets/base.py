"""What a named data set is, and the registry of them.

A data set of another package joins through the entry-point group `longtail.datasets`.
"""

from pathlib import Path
from typing import Protocol

from longtail._registry import Registry
from longtail.data.inventory import Inventory
from longtail.data.sources import Report


class NamedDataset(Protocol):
    """A data set that can be asked for by name."""

    def find(self, root: Path, imbalance_factor: float | None, seed: int) -> Inventory:
        """Find it below `root`, without the network; `imbalance_factor` None is the set's own."""
        ...

    def fetch(self, root: Path, report: Report) -> str:
        """Bring it to `root` from its first source that answers, and say where it came from."""
        ...


DATASETS: Registry[NamedDataset] = Registry("datasets")
