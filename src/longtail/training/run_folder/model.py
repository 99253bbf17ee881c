"""`model/`: a trained model that can be used anywhere: weights as safetensors, the rest as JSON.

`config.json` has what it takes to build the network again and to show it images: architecture, method,
classes and their training images, the size and normalisation of the images, versions.
"""

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as pack
from torch import nn

from longtail import __version__
from longtail._errors import DataError
from longtail._files import whole_file, write_text
from longtail.data import LongTailData
from longtail.data.preprocessing import Preprocessing
from longtail.training.build_method import build_method
from longtail.training.run_config import RunConfig, build_config

FORMAT = 1
WEIGHTS, CONFIG = "model.safetensors", "config.json"


@dataclass(frozen=True)
class SavedModel:
    """A model read back, in eval mode."""

    model: nn.Module
    classes: tuple[str, ...]
    class_counts: tuple[int, ...]
    preprocessing: Preprocessing
    in_channels: int
    config: dict[str, Any]


def save_model(
    folder: Path, model: nn.Module, *, config: RunConfig, data: LongTailData, preprocessing: Preprocessing
) -> None:
    """Write `folder`; `config` is resolved, so that the model is the same after defaults change."""
    folder.mkdir(exist_ok=True)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    with whole_file(folder / WEIGHTS) as out:
        out.write(pack(weights))
    description = {
        "format": FORMAT,
        "longtail": __version__,
        "model": {"name": config.model.name, "in_channels": data.in_channels, "features": config.model.features},
        "head": None if config.head is None else dict(config.head),
        "method": dict(config.method),
        "data": config.data,
        "classes": list(data.classes),
        "class_counts": list(data.class_counts),
        "preprocessing": asdict(preprocessing),
    }
    text = json.dumps(description, indent=1, ensure_ascii=False)
    write_text(folder / CONFIG, text + "\n")


def load_model(folder: Path) -> SavedModel:
    """Read what `save_model` wrote."""
    try:
        description = json.loads((folder / CONFIG).read_text(encoding="utf-8", errors="surrogateescape"))
        weights = load_file(folder / WEIGHTS)
    except FileNotFoundError as error:
        raise DataError(
            f"{error.filename or folder} does not exist",
            "the run has no finished model",
            f"let it finish: longtail train --resume {shlex.quote(str(folder.parent))}",
            code="no-model",
        ) from error
    except (json.JSONDecodeError, SafetensorError) as error:
        raise DataError(f"{folder} is broken: {str(error).splitlines()[0]}", code="broken-model") from error
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise DataError(f"{folder / CONFIG} must have format {FORMAT}", "another version wrote it", code="other-format")
    seen: dict[str, Any] = description["preprocessing"]
    preprocessing = Preprocessing(**seen | {"mean": tuple(seen["mean"]), "std": tuple(seen["std"])})
    architecture = description["model"]
    network = {"name": architecture["name"], "features": architecture.get("features", "last")}
    settings = {"model": network, "head": description.get("head"), "method": description["method"]}
    config = build_config(settings, str(folder))
    method = build_method(
        config,
        class_counts=description["class_counts"],
        in_channels=architecture["in_channels"],
        image_size=preprocessing.size,
    )
    try:
        method.model.load_state_dict(weights)
    except RuntimeError as error:
        raise DataError(
            f"{folder / WEIGHTS} does not fit: {str(error).splitlines()[-1].strip()}", code="other-model"
        ) from error
    return SavedModel(
        method.model.eval(),
        tuple(description["classes"]),
        tuple(description["class_counts"]),
        preprocessing,
        architecture["in_channels"],
        description,
    )
