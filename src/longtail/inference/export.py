"""Export a model: one ONNX file, or a folder with safetensors and a model card."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from longtail._errors import UsageError

if TYPE_CHECKING:
    from longtail.inference.classifier import Classifier

EXTRAS = ("onnx", "onnxruntime", "onnxscript")


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


def export(classifier: "Classifier", out: Path) -> Exported:
    """Write `out`: an ONNX file if it ends in `.onnx`, else a folder; existing files are replaced."""
    if out.suffix == ".onnx":
        require_onnx()
        from longtail.inference.export_onnx import export_onnx

        return export_onnx(classifier, out)
    from longtail.inference.hub_folder import write_hub_folder

    return write_hub_folder(classifier, out)


def require_onnx() -> None:
    """Raise, saying how to install them, if packages that ONNX export needs are missing."""
    absent = [name for name in EXTRAS if importlib.util.find_spec(name) is None]
    if absent:
        raise UsageError(
            f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed",
            "ONNX export writes the file with onnx and checks it with onnxruntime",
            "pip install 'longtail[onnx]'",
        )
