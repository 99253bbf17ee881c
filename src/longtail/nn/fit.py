"""Part the components of a network that has learnt with them equal, without changing what it computes.

EM on the features of some images, or the moments of class groups, give each layer its mixture. Each affine set then
undoes what its component does otherwise than the layer did before:

    γ_j (x - μ_j) / σ_j + β_j = γ (x - μ) / σ + β,   so   γ_j = γ σ_j / σ,   β_j = β + γ (μ_j - μ) / σ

As all components compute the same and Σ_j w_j = 1, so does the layer, whatever the responsibilities. Components that
start apart with γ_j = 1 and β_j = 0 would map every cluster onto the same distribution instead, and so erase what
tells clusters apart until the affine sets have learnt to restore it.
"""

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from longtail.nn.compound_batch_norm import CompoundBatchNorm
from longtail.nn.functional.mixture import accumulation_dtype, mixture_moments, responsibilities

_ITERATIONS = 40
_POINTS = 8192
_SMALLEST = 0.01  # the least variance of a component, as a share of that of all points


@torch.no_grad()
def fit_components(model: nn.Module, images: Tensor, groups: Tensor | None = None) -> None:
    """Fit the components of every compound norm to what it gets of the images; in eval the model computes the same.

    Without groups the components become clusters, by EM; its starting means are points, drawn by torch's default
    generator. With groups, component j gets the mean and variance of group j's points, and those of all points if there
    are none; all have the same prior. Under several processes groups are those of all images, and clusters those of the
    first process.

    Args:
        model: whose compound norms have components that never parted; changed in place. Modes of its modules stay.
        images: one batch, as for the model's forward.
        groups: the component of each image, as for `split_path`.

    Raises:
        ValueError: if the components of a layer have parted already or it has no affine parameters, or there are fewer
            points than components.

    Example:
        >>> from longtail.nn import convert_batch_norm
        >>> model = convert_batch_norm(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))
        >>> fit_components(model, torch.randn(4, 3, 8, 8))
        >>> bool(model[1].running_mean.std(0).min() > 0)
        True
    """
    modes = {module: module.training for module in model.modules()}
    layers = [module for module in modes if isinstance(module, CompoundBatchNorm)]
    for layer in layers:
        if not layer.affine:
            raise ValueError(
                "model must have affine compound norms, got one with affine=False, which cannot compute the same"
            )
        if layer.components > 1 and not has_equal_components(layer):
            raise ValueError("model must have components that never parted, got a layer whose have")
    hooks = [layer.register_forward_pre_hook(partial(_fit, groups=groups)) for layer in layers]
    try:
        model.eval()
        model(images)
    finally:
        for hook in hooks:
            hook.remove()
        for module, mode in modes.items():
            module.training = mode


def has_equal_components(layer: CompoundBatchNorm) -> bool:
    """Whether all components have the same statistics, to the bit: no input is nearer to one than to another."""
    return all(bool((values == values[0]).all()) for values in (layer.running_mean, layer.running_var))


def _fit(layer: CompoundBatchNorm, inputs: tuple[Any, ...], groups: Tensor | None) -> None:
    """What is called before a layer's forward: part its components by what it is about to get."""
    x: Tensor = inputs[0].movedim(1, -1)
    x = x.to(accumulation_dtype(x))
    if groups is None:
        prior, mean, var = _clusters(x.flatten(0, -2), layer)
    else:
        prior, mean, var = _moments_by_group(x.flatten(1, -2) if x.dim() > 2 else x[:, None], groups, layer)
    old_mean, old_deviation = layer.running_mean[0], (layer.running_var[0] + layer.eps).sqrt()
    assert layer.weight is not None
    assert layer.bias is not None
    scale = layer.prior @ layer.weight / old_deviation
    layer.bias.copy_(layer.prior @ layer.bias + scale * (mean - old_mean))
    layer.weight.copy_(scale * (var + layer.eps).sqrt())
    layer.prior.copy_(prior)
    layer.running_mean.copy_(mean)
    layer.running_var.copy_(var)
    if _is_synchronised(layer):
        first = 0 if layer.process_group is None else dist.get_global_rank(layer.process_group, 0)
        for tensor in (layer.weight, layer.bias, layer.prior, layer.running_mean, layer.running_var):
            dist.broadcast(tensor, first, group=layer.process_group)


def _clusters(x: Tensor, layer: CompoundBatchNorm) -> tuple[Tensor, Tensor, Tensor]:
    """Prior, mean and variance of a mixture of the points (N, D), by EM."""
    components = layer.components
    if len(x) < components:
        raise ValueError(f"images must give each layer a point for each of {components} components, got {len(x)}")
    x = x[torch.randperm(len(x))[:_POINTS].to(x.device)]
    temperature = float(layer.num_features) if layer.temperature == "channels" else layer.temperature
    whole = x.var(0, correction=0)
    prior, mean, var = x.new_full((components,), 1 / components), x[:components], whole.expand(components, -1)
    for _ in range(_ITERATIONS):
        weights = responsibilities(x, prior, mean, var, eps=layer.eps, temperature=temperature)
        mass, mean, var = mixture_moments(x, weights)
        var = var.maximum(_SMALLEST * whole)
        prior = mass.clamp_min(1) / mass.clamp_min(1).sum()
    return prior, mean, var


def _moments_by_group(x: Tensor, groups: Tensor, layer: CompoundBatchNorm) -> tuple[Tensor, Tensor, Tensor]:
    """Equal priors, and mean and variance of the points (B, P, D) of each group, over all ranks."""
    shift = layer.running_mean[0].to(x)  # the same on all ranks, and near enough to keep small variances
    x = x - shift
    member = nn.functional.one_hot(groups, layer.components).to(x)
    sums = torch.stack((torch.full_like(x[:, 0], x.shape[1]), x.sum(1), x.square().sum(1)))
    sums = torch.einsum("bm,sbd->smd", member, sums)
    if _is_synchronised(layer):
        dist.all_reduce(sums, group=layer.process_group)
    whole = sums.sum(1, keepdim=True)
    count, first, second = torch.where(sums[0] > 0, sums, whole)
    mean, prior = first / count, x.new_full((layer.components,), 1 / layer.components)
    smallest = _SMALLEST * (whole[2] / whole[0] - (whole[1] / whole[0]).square())
    return prior, mean + shift, (second / count - mean.square()).maximum(smallest)


def _is_synchronised(layer: CompoundBatchNorm) -> bool:
    return layer.synchronize and dist.is_available() and dist.is_initialized()
