"""Load weights from a local file into a model.

Names and shapes must match, but for what differs between two uses of one network:

- names may begin with a prefix that a wrapper left (`PREFIXES`), or be those of others (`translate_names`);
- the classifier is left as it is if the file has none, or one with another number of classes or another name;
- the first convolution is summed over its input channels where the model sees grey images and the file is of colour:
  a grey image then gives what it gave on three equal channels;
- position embeddings of timm's transformers are resampled to another image size, as timm does it.
"""

import contextlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from torch import Tensor, nn

from longtail._errors import counted
from longtail.models.read_weights import read_weights
from longtail.models.translate_names import translate_names

PREFIXES = ("module.", "model.", "backbone.", "_orig_mod.")
"""What DistributedDataParallel, Lightning, self-supervised methods and torch.compile put before a name."""


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Load the file `path` into `model`, in place.

    Args:
        model: any model with `get_classifier()`.
        path: a file that `read_weights` takes: safetensors, or a checkpoint of torch.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it cannot be read, or its weights are those of another model.
    """
    fit_weights(model, read_weights(path), path)


def fit_weights(model: nn.Module, weights: Mapping[str, Tensor], path: str | Path) -> None:
    """Load `weights` into `model`, in place, after the changes that the module's docstring names.

    Args:
        model: any model with `get_classifier()`.
        weights: by name; they are not changed.
        path: where they come from, for the error.

    Raises:
        ValueError: they are those of another model; the model is as it was.
    """
    own = model.state_dict()
    head = next(iter(_classifier_prefixes(model)), "").removesuffix(".")
    known = translate_names(_strip_prefix(_strip_common(weights), own), own, head)
    fitted = _fit_stem(_fit_head(known, model), own)
    differences = _differences(fitted, own)
    if differences:
        converted = _convert_by_timm(fitted, model)
        if converted is None:
            more = f"; and {counted(len(differences) - 3, 'more difference')}" if len(differences) > 3 else ""
            raise ValueError(
                f"pretrained must have the weights of this model, got {path}: {'; '.join(differences[:3])}{more}"
            )
        fitted = converted
    model.load_state_dict(fitted)


def fit_mixtures(model: nn.Module, weights: Mapping[str, Tensor], path: str | Path) -> None:
    """Load the weights of a network with compound batch norms as they are, if the model has the same ones."""
    with contextlib.suppress(ValueError):  # of another number of components: it keeps their mixture as one
        fit_weights(model, weights, path)


def classifier_keys(model: nn.Module) -> list[str]:
    """The names of the classifier's weights in `model.state_dict()`."""
    return [key for key in model.state_dict() if key.startswith(_classifier_prefixes(model))]


def _classifier_prefixes(model: nn.Module) -> tuple[str, ...]:
    get_classifier = cast("Callable[[], nn.Module | tuple[nn.Module, ...]]", model.get_classifier)
    found = get_classifier()
    heads = found if isinstance(found, tuple) else (found,)  # distilled transformers have two
    return tuple(f"{name}." for name, module in model.named_modules() if any(module is head for head in heads))


def _strip_prefix(weights: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Take away the prefix without which most of the weights fit; names without it stay."""

    def fits(prefix: str) -> int:
        names = {key: key.removeprefix(prefix) for key in weights if key.startswith(prefix)}
        return sum(name in own and own[name].shape == weights[key].shape for key, name in names.items())

    prefix = max(_prefixes(weights), key=fits)
    others = {key: value for key, value in weights.items() if not key.startswith(prefix)}
    return others | {key.removeprefix(prefix): value for key, value in weights.items() if key.startswith(prefix)}


def _strip_common(weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Take away what DistributedDataParallel puts before every name, which also hides foreign names."""
    stripped = weights
    while stripped and all(key.startswith("module.") for key in stripped):
        stripped = {key.removeprefix("module."): value for key, value in stripped.items()}
    return stripped


def _prefixes(weights: Mapping[str, Tensor]) -> list[str]:
    """What names begin with, `_orig_mod.module.` too; first the empty one, so that it wins a tie."""
    found = {"": None}
    for key in weights:
        prefix = ""
        while following := next((name for name in PREFIXES if key.startswith(prefix + name)), ""):
            prefix += following
            found[prefix] = None
    return list(found)


def _fit_head(weights: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Keep the model's own classifier where the file's does not fit; drop the file's where it has another name."""
    own = model.state_dict()
    modules = {key.partition(".")[0] for key in own}
    others: dict[str, list[Tensor]] = {}
    for key, value in weights.items():
        if key.partition(".")[0] not in modules:
            others.setdefault(key.partition(".")[0], []).append(value)
    # A head has no convolutions: a module that has some is a part of another network.
    heads = {module for module, values in others.items() if all(value.ndim <= 2 for value in values)}
    fitted = {key: value for key, value in weights.items() if key.partition(".")[0] not in heads}

    prefixes = _classifier_prefixes(model)
    old, new = ({key: value.shape for key, value in part.items() if key.startswith(prefixes)} for part in (fitted, own))
    if old != new:
        fitted = {key: value for key, value in fitted.items() if key not in old} | {key: own[key] for key in new}
    # Files from before torch 0.4.1 do not count batches.
    return {key: own[key] for key in own if key.endswith("num_batches_tracked")} | fitted


def _fit_stem(weights: dict[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Fit convolutions over three input channels to the model's number of channels, as timm does it."""
    fitted = dict(weights)
    for key, value in weights.items():
        if key in own and value.ndim == own[key].ndim == 4 and value.shape[1] == 3 != own[key].shape[1]:
            from timm.models import adapt_input_conv

            fitted[key] = adapt_input_conv(own[key].shape[1], value)
    return fitted


def _convert_by_timm(weights: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor] | None:
    """The weights after what timm does to published files of this architecture; None if they still do not fit."""
    architecture = type(model).__module__
    convert = getattr(sys.modules[architecture], "checkpoint_filter_fn", None)
    if convert is None or not architecture.startswith("timm."):
        return None
    try:
        converted = convert(dict(weights), model)
    except Exception:  # it trusts that the file is of this architecture; whatever it stumbles over, the file is not
        return None
    return converted if not _differences(converted, model.state_dict()) else None


def _differences(weights: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> list[str]:
    return [
        *(f"{key} is missing" for key in own if key not in weights),
        *(f"{key} is not in the model" for key in sorted(weights) if key not in own),
        *(
            f"{key} has shape {tuple(weights[key].shape)}, in the model {tuple(own[key].shape)}"
            for key in own
            if key in weights and weights[key].shape != own[key].shape
        ),
    ]
