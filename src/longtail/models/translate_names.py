"""Weights by the names of others into ours.

- CIFAR ResNets as the public code of He et al.'s small networks names them (`layer1.0.bn1`, `linear` or `fc`), the
  network behind most published CIFAR-LT results; only with its shortcuts without parameters is it ours;
- a head of another name, where there is one and its shapes are those of the model's own;
- compound batch norms, for a model with plain ones: each becomes the batch norm of its mixture, which has the mean and
  the variance of all components together, and their mean scale and shift;
- what `StageFeatureNet` adds to its backbone is left out for a network without it.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

_CIFAR = (
    (r"^conv1\.", "conv."),
    (r"^bn1\.", "norm."),
    (r"^layer(\d)\.", r"stage\1."),
    (r"^(stage\d\.\d+\.)bn(\d)\.", r"\1norm\2."),
    (r"^(linear|fc)\.", "classifier."),
)
_OF_STAGE_FEATURES = ("centre", "spread", "temperature")


def translate_names(weights: Mapping[str, Tensor], own: Mapping[str, Tensor], head: str) -> dict[str, Tensor]:
    """The weights by the model's names, as far as these changes go; what they do not concern stays.

    Args:
        weights: by name, without the prefix of a wrapper.
        own: the model's.
        head: the name of the model's classifier.
    """
    found = dict(weights)
    if "stage1.0.norm1.weight" in own and "layer1.0.bn1.weight" in found:
        found = {_as_ours(key): value for key, value in found.items()}
    found = _collapse(found, own)
    if not any(name in own for name in _OF_STAGE_FEATURES):
        extra = [name for name in _OF_STAGE_FEATURES if name in found and found[name].ndim <= 1]
        found = {key: value for key, value in found.items() if key not in extra}
    return _rename_head(found, own, head)


def has_mixtures(weights: Mapping[str, Tensor]) -> bool:
    """Whether there are compound batch norms among the weights."""
    return any(_is_mixture(weights, key.rpartition(".")[0]) for key in weights if key.endswith(".prior"))


def _as_ours(name: str) -> str:
    for pattern, ours in _CIFAR:
        name = re.sub(pattern, ours, name)
    return name


def _is_mixture(weights: Mapping[str, Tensor], layer: str) -> bool:
    prior, mean = weights.get(f"{layer}.prior"), weights.get(f"{layer}.running_mean")
    return prior is not None and mean is not None and mean.ndim == 2 and prior.shape == mean.shape[:1]


def _collapse(weights: dict[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    layers = [key.removesuffix(".prior") for key in weights if key.endswith(".prior") and key not in own]
    found = dict(weights)
    for layer in layers:
        if not _is_mixture(weights, layer):
            continue
        prior = found.pop(f"{layer}.prior").double()
        prior = (prior / prior.sum())[:, None]
        mean, variance = (weights[f"{layer}.running_{name}"].double() for name in ("mean", "var"))
        pooled = (prior * mean).sum(0)
        found[f"{layer}.running_mean"] = pooled.float()
        found[f"{layer}.running_var"] = (prior * (variance + (mean - pooled) ** 2)).sum(0).float()
        for name in ("weight", "bias"):
            value = weights.get(f"{layer}.{name}")
            if value is not None and value.ndim == 2:
                found[f"{layer}.{name}"] = (prior * value.double()).sum(0).float()
    return found


def _rename_head(weights: dict[str, Tensor], own: Mapping[str, Tensor], head: str) -> dict[str, Tensor]:
    """A single linear layer of another name and the shapes of the model's own, by the name of that one."""
    mine = {key.removeprefix(f"{head}."): value.shape for key, value in own.items() if key.startswith(f"{head}.")}
    if not mine or any(key.startswith(f"{head}.") for key in weights):
        return weights
    unknown: dict[str, dict[str, torch.Size]] = {}
    for key, value in weights.items():
        if key not in own:
            module, _, name = key.rpartition(".")
            unknown.setdefault(module, {})[name] = value.shape
    fitting = [module for module, shapes in unknown.items() if shapes == mine]
    if len(fitting) != 1:
        return weights
    return {
        f"{head}.{key.removeprefix(f'{fitting[0]}.')}" if key.startswith(f"{fitting[0]}.") else key: value
        for key, value in weights.items()
    }
