"""FileScan into the compound batch norms of a model: which component has how much, and which classes use it.

Looking changes nothing: the model is in eval mode, the images are the same each time, and torch's generator is left as
it was. So a run that is looked at goes through the same states as one that is not.
"""

import json
import math

import numpy as np
import torch
from torch import Tensor, nn

from longtail.data.loader import eval_loader
from longtail.evaluation import MixtureLayer, MixtureRecord
from longtail.evaluation.mixture_record import pack_record
from longtail.nn import CompoundBatchNorm
from longtail.nn.functional import responsibilities
from longtail.training.build import Parts
from longtail.training.callback import Row

# Images of the test split that are looked at in the end and, to cost little, during training.
_IMAGES, _IMAGES_MEANWHILE = 512, 256
# Records of a run at most, the last epoch apart.
_RECORDS = 20


@torch.no_grad()
def describe_mixture(
    model: nn.Module, parts: Parts, device: torch.device, *, most_images: int = _IMAGES
) -> list[MixtureLayer]:
    """The layers, in order; empty for a model without compound batch norm.

    Args:
        model: left in eval mode.
        parts: with the images.
        device: of the model.
        most_images: of the test split to look at, evenly spread over it.
    """
    layers = {name: module for name, module in model.named_modules() if isinstance(module, CompoundBatchNorm)}
    if not layers:
        return []
    classes = len(parts.data.classes)
    sums = {name: torch.zeros(classes, layer.components) for name, layer in layers.items()}
    counts = torch.zeros(classes)
    images = parts.data.test
    chosen = np.linspace(0, len(images) - 1, min(most_images, len(images))).astype(np.int64)
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
        # A loader draws a seed when it starts; a compiled model would be compiled anew for the hooks.
        with torch.random.fork_rng(devices=[]), torch.compiler.set_stance("force_eager"):
            for batch in eval_loader(images.select(chosen), parts.preprocessing, batch_size=128):
                target = batch.target
                counts += torch.bincount(target, minlength=classes)
                model(batch.views[0].to(device))
    finally:
        for hook in hooks:
            hook.remove()
    return [_describe(name, layer, sums[name], counts) for name, layer in layers.items()]


def record_due(epoch: int, *, epochs: int, every: int) -> bool:
    """Whether the mixtures are recorded after `epoch` epochs, of which each `every`-th is evaluated.

    Example:
        >>> [epoch for epoch in range(1, 101) if record_due(epoch, epochs=100, every=3)]
        [6, 12, 18, 24, 30, 36, 42, 48, 54, 60, 66, 72, 78, 84, 90, 96, 100]
    """
    stride = every * max(1, math.ceil(epochs / every / _RECORDS))
    return epoch % stride == 0 or epoch == epochs


def record_mixture(model: nn.Module, parts: Parts, device: torch.device, *, epoch: int) -> list[str]:
    """The layers after `epoch` epochs as a line of JSON; no line for a model without compound batch norm."""
    layers = describe_mixture(model, parts, device, most_images=_IMAGES_MEANWHILE)
    return [json.dumps(pack_record(MixtureRecord(epoch, tuple(layers))))] if layers else []


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
    apart = [layer.mean_distance or 0.0 for layer in found]
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
