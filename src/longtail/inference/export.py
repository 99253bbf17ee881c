"""Take a model elsewhere: one ONNX file, or a folder with safetensors and a model card."""

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
    """What was written.

    Args:
        path: the file or folder.
        max_difference: for ONNX, the largest difference of a logit from torch's.
        batch_sizes: for ONNX, the batch sizes at which that was measured.
    """

    path: Path
    max_difference: float | None = None
    batch_sizes: tuple[int, ...] = ()


def export(classifier: "Classifier", out: Path) -> Exported:
    """Write `out`: ONNX if its name ends so, else a folder; what was there before is replaced."""
    if out.suffix == ".onnx":
        require_onnx()
        from longtail.inference.export_onnx import export_onnx

        return export_onnx(classifier, out)
    from longtail.inference.hub_folder import write_hub_folder

    return write_hub_folder(classifier, out)


def require_onnx() -> None:
    """Say how to install what ONNX needs, if it is not there."""
    absent = [name for name in EXTRAS if importlib.util.find_spec(name) is None]
    if absent:
        raise UsageError(
            f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed",
            "ONNX export writes with onnx and checks the result with onnxruntime",
            "pip install 'longtail[onnx]'",
        )
