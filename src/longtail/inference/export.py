"""Export a model: one ONNX file, or a folder with safetensors and a model card."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from longtail._errors import UsageError
from longtail.inference.exported import Exported

if TYPE_CHECKING:
    from longtail.inference.classifier import Classifier

EXTRAS = ("onnx", "onnxruntime", "onnxscript")


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
