"""Look into the compound batch norms of a trained model: which component has how much, and which classes use it."""

import numpy as np
import torch
from torch import Tensor, nn

from longtail.data.pipeline import eval_loader
from longtail.evaluation import MixtureLayer
from longtail.nn import CompoundBatchNorm
from longtail.nn.functional import responsibilities
from longtail.training.assembly import Parts
from longtail.training.watcher import Row

# Images of the test split that are looked at; more would tell little more.
_IMAGES = 512


@torch.no_grad()
def describe_mixture(model: nn.Module, parts: Parts, device: torch.device) -> list[MixtureLayer]:
    """The layers, in order; empty for a model without compound batch norm."""
    layers = {name: module for name, module in model.named_modules() if isinstance(module, CompoundBatchNorm)}
    if not layers:
        return []
    classes = len(parts.data.classes)
    sums = {name: torch.zeros(classes, layer.components) for name, layer in layers.items()}
    counts = torch.zeros(classes)
    images = parts.data.test
    chosen = np.linspace(0, len(images) - 1, min(_IMAGES, len(images))).astype(np.int64)
    target: Tensor = torch.empty(0)

    def note(name: str, layer: CompoundBatchNorm, x: Tensor) -> None:
        points = x.float().movedim(1, -1).flatten(1, -2)
        temperature = float(layer.num_features) if layer.temperature == "channels" else layer.temperature
        mixture = (layer.prior, layer.running_mean, layer.running_var)
        w = responsibilities(points.flatten(0, 1), *mixture, eps=layer.eps, temperature=temperature)
        sums[name].index_add_(0, target, w.view(len(x), -1, layer.components).mean(1).cpu())

    hooks = [
        layer.register_forward_pre_hook(lambda module, inputs, name=name: note(name, module, inputs[0]))
        for name, layer in layers.items()
    ]
    try:
        model.eval()
        for batch in eval_loader(images.select(chosen), parts.preprocessing, batch_size=128):
            target = batch.target
            counts += torch.bincount(target, minlength=classes)
            model(batch.views[0].to(device))
    finally:
        for hook in hooks:
            hook.remove()
    return [_describe(name, layer, sums[name], counts) for name, layer in layers.items()]


def mixture_row(model: nn.Module) -> Row:
    """Two numbers of the mixtures for metrics.csv, means over the layers; nothing without compound batch norm.

    Effective components fall to 1 when one takes all, distances to 0 when all are the same. Both come from the buffers,
    so that they cost nothing.
    """
    layers = [module for module in model.modules() if isinstance(module, CompoundBatchNorm) and module.components > 1]
    if not layers:
        return {}
    none = torch.zeros(0)
    found = [_describe("", layer, none, none) for layer in layers]
    apart = [sum(map(sum, layer.distances)) / (len(layer.priors) * (len(layer.priors) - 1)) for layer in found]
    return {
        "mixture/effective_components": sum(layer.effective_components for layer in found) / len(found),
        "mixture/distance": sum(apart) / len(apart),
    }


@torch.no_grad()
def _describe(name: str, layer: CompoundBatchNorm, sums: Tensor, counts: Tensor) -> MixtureLayer:
    mean, var, prior = layer.running_mean.float().cpu(), layer.running_var.float().cpu(), layer.prior.float().cpu()
    prior = prior / prior.sum()
    deviation = (prior @ var + layer.eps).sqrt()
    distances = ((mean[:, None] - mean) / deviation).abs().mean(-1)
    usage = sums / counts.clamp_min(1)[:, None]
    return MixtureLayer(
        name=name,
        priors=tuple(prior.tolist()),
        distances=tuple(tuple(row) for row in distances.tolist()),
        usage=tuple(tuple(row) if n else None for row, n in zip(usage.tolist(), counts.tolist(), strict=True)),
    )
