"""Export to one self-describing ONNX file, which is checked against torch before it replaces anything.

Input `images`: float32 (batch, channels, size, size), preprocessed. Output `logits`: float32 (batch, classes), with
what `longtail adjust` stored done to them. If that abstains there is a second output `label`: int64 (batch), the
predicted class, or -1 for an image that is too unsure. The batch may have any size. The metadata holds strings, some of
them JSON:

| Key | Holds |
|---|---|
| classes | the names, in the order of the logits |
| class_counts | training images of each class |
| preprocessing | resize, crop, channels, mean, std: how to preprocess an image |
| decision | what the graph does to the logits: shift, temperature, abstain_below, how they were chosen; or null |
| model, method, data, longtail | the network, the method, the data set, the version |
"""

import copy
import json
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from longtail._errors import DataError
from longtail.data.transforms.crop import CentreCrop
from longtail.evaluation import Decision
from longtail.inference.exported import Exported
from longtail.nn import fold_batch_norm

if TYPE_CHECKING:
    from longtail.inference.classifier import Classifier

TOLERANCE = 1e-4
# Float32 sums in another order differ in proportion to their size; networks with logits of 80 differ by 4e-6 of them.
RELATIVE_TOLERANCE = 2e-5
BATCH_SIZES = (1, 3, 8)
# Protocol buffers end at 2 GB: the weights of larger models go into a separate file.
_LARGEST = 1_800_000_000


class DecidingModel(nn.Module):
    """A network with its decision behind it; see `longtail.evaluation.decision`.

    Args:
        model: from images to logits.
        decision: what is done to them.
    """

    shift: torch.Tensor

    def __init__(self, model: nn.Module, decision: Decision) -> None:
        super().__init__()
        self.model, self.temperature, self.abstain_below = model, decision.temperature, decision.abstain_below
        self.register_buffer("shift", torch.tensor(decision.shift, dtype=torch.float32))

    def forward(self, images: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Images to logits, and to labels if the decision abstains."""
        logits: torch.Tensor = self.model(images).float() / self.temperature + self.shift
        if not self.abstain_below:
            return logits
        confidence, label = logits.softmax(1).max(1)
        return logits, torch.where(confidence < self.abstain_below, -1, label)


class ExportError(DataError):
    """The exported model and torch's disagree."""


def export_onnx(classifier: "Classifier", out: Path) -> Exported:
    """Write the model to `out` if onnxruntime agrees with torch.

    Raises:
        ExportError: a logit differs by more than 1e-4, and by more than 2e-5 of the largest one; nothing is written
            then.
        DataError: `out` cannot be written.
    """
    model = copy.deepcopy(classifier.model).cpu().eval()
    folded = fold_batch_norm(copy.deepcopy(model))
    if classifier.decision is not None:
        model, folded = (DecidingModel(part, classifier.decision).eval() for part in (model, folded))
    size, channels = classifier.saved.preprocessing.size, classifier.saved.in_channels
    inputs = [_images(number, channels, size) for number in BATCH_SIZES]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".export-", dir=out.parent))
    except OSError as error:
        raise _cannot_write(out, error) from error
    try:
        _write(folded, inputs[1], metadata(classifier), draft / out.name)
        found = [_difference(model, draft / out.name, images) for images in inputs]
        difference = max(apart for apart, _ in found)
        allowed = max(TOLERANCE, RELATIVE_TOLERANCE * max(largest for _, largest in found))
        if not difference <= allowed:
            raise ExportError(
                f"a logit of the exported model differs from torch's by {difference:.2g}, more than {allowed:.2g}",
                "its accuracy would not be the one that was measured",
                "please report this with the model's name and the versions of onnx, onnxruntime and torch",
                code="export-differs",
            )
        for file in draft.iterdir():
            file.replace(out.parent / file.name)
    except OSError as error:
        raise _cannot_write(out, error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Exported(out, difference, BATCH_SIZES)


def metadata(classifier: "Classifier") -> dict[str, str]:
    """The metadata of the file."""
    config = classifier.saved.config
    values = {
        "classes": list(classifier.classes),
        "class_counts": list(classifier.class_counts),
        "preprocessing": describe_preprocessing(classifier),
        "method": config["method"],
        "decision": None if classifier.decision is None else classifier.decision.as_json(),
    }
    # Class names come from file names, which need not be valid text; the metadata must be.
    texts = {name: json.dumps(value) for name, value in values.items()}
    plain = {"model": config["model"]["name"], "data": config.get("data"), "longtail": config["longtail"]}
    return texts | {name: str(value).encode("utf-8", "replace").decode() for name, value in plain.items()}


def describe_preprocessing(classifier: "Classifier") -> dict[str, Any]:
    """The preprocessing of an image, step by step, in Pillow's words; docs/using-a-model.md does it."""
    seen = classifier.saved.preprocessing
    crop = seen.evaluation().crop
    resize = crop.resize if isinstance(crop, CentreCrop) else seen.size
    return {
        # A JPEG is decoded at 1/2, 1/4 or 1/8 of its size, if no side becomes smaller than this: `Image.draft`.
        "jpeg_draft": crop.decode_size,
        "exif_transpose": True,
        "transparent_on": "white",
        "channels": "RGB" if classifier.saved.in_channels == 3 else "L",
        "resize_shorter_side": resize,
        "interpolation": "bilinear, antialiased",
        "center_crop": seen.size,
        "center_crop_offset": "round((side - center_crop) / 2), half to even",
        "divide_by": 255,
        "mean": list(seen.mean),
        "std": list(seen.std),
        "layout": "NCHW",
        "dtype": "float32",
    }


def _write(model: nn.Module, example: torch.Tensor, properties: dict[str, str], file: Path) -> None:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch warns about its own internals
        program = torch.onnx.export(
            model,
            (example,),
            dynamo=True,
            dynamic_shapes=({0: "batch"},),
            input_names=["images"],
            output_names=["logits", "label"][: 2 if getattr(model, "abstain_below", 0.0) else 1],
            verbose=False,
        )
    if program is None:
        raise ExportError("torch could not export the model to ONNX", code="export-failed")
    program.model.metadata_props.update(properties)
    weight = sum(tensor.numel() * tensor.itemsize for tensor in model.state_dict().values())
    program.save(file, external_data=weight > _LARGEST)


def _difference(model: nn.Module, file: Path, images: torch.Tensor) -> tuple[float, float]:
    """The largest difference between logits, and the largest logit."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (found,) = session.run(["logits"], {"images": images.numpy()})
    with torch.no_grad():
        answer = model(images)
    expected = answer[0] if isinstance(answer, tuple) else answer
    if tuple(found.shape) != tuple(expected.shape):
        raise ExportError(
            f"the exported model gives logits of shape {tuple(found.shape)}, torch's {tuple(expected.shape)}",
            code="export-failed",
        )
    return float((torch.from_numpy(found) - expected).abs().max()), float(expected.abs().max())


def _images(number: int, channels: int, size: int) -> torch.Tensor:
    """Random images: normalised pixels have mean 0 and standard deviation 1."""
    return torch.randn(number, channels, size, size, generator=torch.Generator().manual_seed(number))


def _cannot_write(out: Path, error: OSError) -> DataError:
    return DataError(
        f"cannot write {out}: {error.strerror or error}",
        "",
        "free some space, or choose another --out",
        code="cannot-write",
    )
