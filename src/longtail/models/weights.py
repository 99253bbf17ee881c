"""Load weights from a local safetensors file into a model.

Only safetensors: a pickle can run code when it is loaded. Names and shapes must match, except for the classifier: it
is left as it is if the file has none, or one with another number of classes.
"""

from collections.abc import Callable
from pathlib import Path
from typing import cast

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from longtail._errors import counted


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Load the safetensors file `path` into `model`, in place.

    Args:
        model: any model with `get_classifier()`.
        path: a file whose name ends in .safetensors.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a safetensors file, or its weights are those of another model.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise ValueError(
            f"pretrained must be a .safetensors file, got {path} (other formats can run code when they are "
            "loaded; convert them with safetensors.torch.save_file)"
        )
    if not path.is_file():
        raise FileNotFoundError(f"pretrained must be an existing file, got {path} (looked from {Path.cwd()})")
    try:
        weights = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"pretrained must be a valid safetensors file, got {path}: {error}") from error

    own = model.state_dict()
    head = classifier_keys(model)
    if any(key not in weights or weights[key].shape != own[key].shape for key in head):
        for key in head:
            weights[key] = own[key]

    differences = [
        *(f"{key} is missing" for key in own if key not in weights),
        *(f"{key} is not in the model" for key in sorted(weights) if key not in own),
        *(
            f"{key} has shape {tuple(weights[key].shape)}, in the model {tuple(own[key].shape)}"
            for key in own
            if key in weights and weights[key].shape != own[key].shape
        ),
    ]
    if differences:
        more = f"; and {counted(len(differences) - 3, 'more difference')}" if len(differences) > 3 else ""
        raise ValueError(
            f"pretrained must have the weights of this model, got {path}: {'; '.join(differences[:3])}{more}"
        )
    model.load_state_dict(weights)


def classifier_keys(model: nn.Module) -> list[str]:
    """The names of the classifier's weights in `model.state_dict()`."""
    get_classifier = cast("Callable[[], nn.Module | tuple[nn.Module, ...]]", model.get_classifier)
    found = get_classifier()
    heads = found if isinstance(found, tuple) else (found,)  # distilled transformers have two
    names = [name for name, module in model.named_modules() if any(module is head for head in heads)]
    return [key for key in model.state_dict() if any(key.startswith(f"{name}.") for name in names)]
