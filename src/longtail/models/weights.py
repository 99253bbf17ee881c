"""Weights from a local safetensors file into a model.

safetensors alone: a pickle can run code when it is read. Names and shapes have to fit, but for the
classifier, which is left as it was made when the file has none or one of another number of classes.
"""

from collections.abc import Callable
from pathlib import Path
from typing import cast

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Read the safetensors file `path` into `model`, in place.

    Args:
        model: any model with a `get_classifier()`.
        path: a file whose name ends in .safetensors.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no safetensors file, or its weights are of another model.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise ValueError(
            f"pretrained must be a .safetensors file, got {path} (other formats can run code when they are "
            "read; convert them with safetensors.torch.save_file)"
        )
    if not path.is_file():
        raise FileNotFoundError(f"pretrained names a file that does not exist: {path} (from {Path.cwd()})")
    try:
        weights = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"pretrained is no valid safetensors file: {path} ({error})") from error

    own = model.state_dict()
    head = classifier_keys(model)
    if any(key not in weights or weights[key].shape != own[key].shape for key in head):
        for key in head:
            weights[key] = own[key]

    differences = [
        *(f"{key} is missing" for key in own if key not in weights),
        *(f"{key} is unknown to the model" for key in sorted(weights) if key not in own),
        *(
            f"{key} has shape {tuple(weights[key].shape)}, the model's has {tuple(own[key].shape)}"
            for key in own
            if key in weights and weights[key].shape != own[key].shape
        ),
    ]
    if differences:
        more = f", and {len(differences) - 3} more differences" if len(differences) > 3 else ""
        raise ValueError(f"pretrained holds the weights of another model: {path}: {'; '.join(differences[:3])}{more}")
    model.load_state_dict(weights)


def classifier_keys(model: nn.Module) -> list[str]:
    """The names of the classifier's weights in `model.state_dict()`."""
    get_classifier = cast("Callable[[], nn.Module | tuple[nn.Module, ...]]", model.get_classifier)
    found = get_classifier()
    heads = found if isinstance(found, tuple) else (found,)  # distilled transformers have two
    names = [name for name, module in model.named_modules() if any(module is head for head in heads)]
    return [key for key in model.state_dict() if any(key.startswith(f"{name}.") for name in names)]
