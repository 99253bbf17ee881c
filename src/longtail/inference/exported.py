"""The result of an export: a file or folder, and what was checked of it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Exported:
    """What `export` wrote.

    Args:
        path: the file or folder.
        max_difference: for ONNX, the largest difference between a logit and torch's.
        batch_sizes: for ONNX, the batch sizes that were compared.
    """

    path: Path
    max_difference: float | None = None
    batch_sizes: tuple[int, ...] = ()
