"""`model/`: a trained model that can be used anywhere: weights as safetensors, the rest as JSON.

`config.json` has what it takes to build the network again and to show it images: architecture, method,
classes and their training images, the size and normalisation of the images, versions; what `longtail adjust` stored;
the SHA-256 of the weights, and its own. Both are checked before the model is used.
"""

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as unpack
from safetensors.torch import save as pack
from torch import nn

from longtail import __version__
from longtail._errors import DataError, UsageError
from longtail._files import whole_file, write_text
from longtail.data import LongTailData
from longtail.data.preprocessing import Preprocessing
from longtail.evaluation import Decision
from longtail.training.build_method import build_method
from longtail.training.ranges import MOST_PIXELS, check_arguments
from longtail.training.run_config import RunConfig, build_config
from longtail.training.run_folder.read import FORMAT, decision_of, read_description
from longtail.training.seal import KEY as SEAL
from longtail.training.seal import digest_of, seal_object

WEIGHTS, CONFIG = "model.safetensors", "config.json"


@dataclass(frozen=True)
class SavedModel:
    """A model read back, in eval mode; its logits are those of the training, before `decision`."""

    model: nn.Module
    classes: tuple[str, ...]
    class_counts: tuple[int, ...]
    preprocessing: Preprocessing
    in_channels: int
    config: dict[str, Any]
    decision: Decision | None = None


def save_model(
    folder: Path, model: nn.Module, *, config: RunConfig, data: LongTailData, preprocessing: Preprocessing
) -> None:
    """Write `folder`; `config` is resolved, so that the model is the same after defaults change."""
    folder.mkdir(exist_ok=True)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    packed = pack(weights)
    with whole_file(folder / WEIGHTS) as out:
        out.write(packed)
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
        "weights": digest_of(packed),
    }
    _write_description(folder, description)


def store_decision(folder: Path, decision: Decision | None) -> None:
    """Store beside the weights what is done with their logits; None goes back to the model as it was trained."""
    description = {key: value for key, value in read_description(folder).items() if key not in ("decision", SEAL)}
    if decision is not None:
        description["decision"] = decision.as_json()
    _write_description(folder, description)


def _write_description(folder: Path, description: dict[str, Any]) -> None:
    text = json.dumps(seal_object(description), indent=1, ensure_ascii=False)
    write_text(folder / CONFIG, text + "\n")


def load_model(folder: Path) -> SavedModel:
    """Read what `save_model` wrote, and prove that it is that."""
    try:
        packed = (folder / WEIGHTS).read_bytes()
        description = read_description(folder)
        weights = unpack(packed)
    except FileNotFoundError as error:
        raise DataError(
            f"{error.filename or folder} does not exist",
            "the run has no finished model",
            f"let it finish: longtail train --resume {shlex.quote(str(folder.parent))}",
            code="no-model",
        ) from error
    except (SafetensorError, OSError) as error:
        raise _broken(folder / WEIGHTS, str(error).splitlines()[0]) from error
    if digest_of(packed) != description["weights"]:
        raise _broken(folder / WEIGHTS, "its bytes do not have the digest that config.json names")
    if not all(tensor.isfinite().all() for tensor in weights.values()):
        raise _broken(folder / WEIGHTS, "some of its weights are not finite numbers")
    architecture = description["model"]
    preprocessing = _read_preprocessing(description["preprocessing"], architecture["in_channels"], folder / CONFIG)
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
        decision_of(description, folder / CONFIG),
    )


def _read_preprocessing(seen: dict[str, Any], channels: Any, file: Path) -> Preprocessing:
    try:
        check_arguments(Preprocessing, seen, "preprocessing.")
        found = Preprocessing(**seen | {"mean": tuple(seen["mean"]), "std": tuple(seen["std"])})
    except (UsageError, TypeError, KeyError) as error:
        raise _broken(file, str(error)) from error
    if not 1 <= found.size <= MOST_PIXELS:
        raise _broken(file, f"preprocessing.size must be at least 1 and at most {MOST_PIXELS}, got {found.size}")
    if channels not in (1, 3) or not len(found.mean) == len(found.std) == channels or min(found.std) <= 0:
        raise _broken(file, "preprocessing must have a mean, and a std above 0, for each of 1 or 3 channels")
    return found


def _broken(file: Path, reason: str) -> DataError:
    return DataError(
        f"{file} is broken: {reason}",
        "its predictions could not be trusted",
        "copy it again from where the run was made, or train the run anew",
        code="broken-model",
        paths=[str(file)],
    )
