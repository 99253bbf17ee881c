"""Load weights from a local file into a model: safetensors, or a checkpoint of torch.

A checkpoint is read without running anything in it. Weights may be nested (`state_dict`, `model`), and their names may
have a prefix (`module.`, `backbone.`) where they fit without it. Names and shapes must match, except for

- the classifier, which is left as it is if the file has none, or one with another number of classes;
- the first layer of a network for grey images, which gets the sum of the weights of the three colours.
"""

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from longtail._errors import counted
from longtail.models.pretrained_weights import is_packaged, packaged_state

_NESTS = ("state_dict_ema", "state_dict", "model_state_dict", "model_ema", "model", "network")
_PREFIXES = ("module.", "_orig_mod.", "model.", "backbone.", "encoder.", "network.")


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Load the weights in the file `path` into `model`, in place.

    Args:
        model: any model with `get_classifier()`.
        path: a file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it cannot be read without running code, or its weights are those of another model.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"pretrained must be an existing file, got {path} (looked from {Path.cwd()})")
    own, head = model.state_dict(), classifier_keys(model)
    weights = _without_prefix(read_weights(path), set(own) - set(head))
    if any(key not in weights or weights[key].shape != own[key].shape for key in head):
        weights = {key: value for key, value in weights.items() if key in own} | {key: own[key] for key in head}
    for key, value in weights.items():
        if key in own and value.ndim == 4 and value.shape[1] == 3 and own[key].shape[1] == 1:
            weights[key] = value.sum(1, keepdim=True)
    for key in own:
        if key.endswith("num_batches_tracked"):  # old checkpoints lack it
            weights.setdefault(key, own[key])

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


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors in a file by name; nothing that is in it is run."""
    if is_packaged(path):
        return packaged_state(path)
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except SafetensorError as error:
        raise ValueError(f"pretrained must be a valid safetensors file, got {path}: {error}") from error
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"pretrained must hold weights and nothing else, got {path}, which can run code when it is loaded "
            "(keep its state_dict alone: safetensors.torch.save_file)"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise ValueError(f"pretrained must be a file of weights, got {path}: {reason}") from error
    for nest in _NESTS:
        if isinstance(content, Mapping) and isinstance(content.get(nest), Mapping):
            content = content[nest]
    tensors = {str(key): value for key, value in content.items() if isinstance(value, Tensor)} if content else {}
    if not tensors:
        raise ValueError(f"pretrained must be a file of weights, got {path}, which has none")
    return tensors


def _without_prefix(weights: dict[str, Tensor], wanted: set[str]) -> dict[str, Tensor]:
    """The weights by the names that fit best once prefixes are cut."""
    best = weights
    for prefix in _PREFIXES * 2:
        cut = {key.removeprefix(prefix): value for key, value in best.items()}
        if len(cut) == len(best) and len(wanted & set(cut)) > len(wanted & set(best)):
            best = cut
    return dict(best)


def classifier_keys(model: nn.Module) -> list[str]:
    """The names of the classifier's weights in `model.state_dict()`."""
    get_classifier = cast("Callable[[], nn.Module | tuple[nn.Module, ...]]", model.get_classifier)
    found = get_classifier()
    heads = found if isinstance(found, tuple) else (found,)  # distilled transformers have two
    names = [name for name, module in model.named_modules() if any(module is head for head in heads)]
    return [key for key in model.state_dict() if any(key.startswith(f"{name}.") for name in names)]
