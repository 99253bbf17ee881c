"""Look into the compound batch norms of a model: which component has how much mass, and which classes use it.

Looking changes nothing: the model is in eval mode while it lasts, and no random number is drawn. So a run that is
looked at goes through the same states as one that is not.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.evaluation import MixtureLayer
from longtail.nn import CompoundBatchNorm
from longtail.nn.functional import responsibilities


@torch.no_grad()
def describe_mixture(model: nn.Module, batches: Iterable[Batch], *, num_classes: int) -> list[MixtureLayer]:
    """The layers, in order; empty for a model without compound batch norm.

    Args:
        model: looked at in eval mode, and left in the mode that it was in.
        batches: images in the view of the evaluation, on the model's device; their first view is taken.
        num_classes: K.
    """
    layers = _layers(model)
    if not layers:
        return []
    sums = {name: torch.zeros(num_classes, layer.components) for name, layer in layers.items()}
    counts = torch.zeros(num_classes)
    target: Tensor = torch.empty(0)

    def note(name: str, layer: CompoundBatchNorm, x: Tensor) -> None:
        points = x.float().movedim(1, -1).flatten(1, -2) if x.dim() > 2 else x.float()[:, None]
        mixture = layer.prior, layer.running_mean, layer.running_var
        w = responsibilities(points.flatten(0, 1), *mixture, eps=layer.eps)
        sums[name].index_add_(0, target, w.view(len(x), -1, layer.components).mean(1).cpu())

    hooks = [
        layer.register_forward_pre_hook(lambda module, inputs, name=name: note(name, module, inputs[0]))
        for name, layer in layers.items()
    ]
    modes = {module: module.training for module in model.modules()}
    try:
        model.eval()
        with torch.compiler.set_stance("force_eager"):  # a compiled model would be compiled anew for the hooks
            for batch in batches:
                target = batch.target.cpu()
                counts += torch.bincount(target, minlength=num_classes)
                model(batch.views[0])
    finally:
        for hook in hooks:
            hook.remove()
        for module, mode in modes.items():
            module.training = mode
    return [_describe(name, layer, sums[name], counts) for name, layer in layers.items()]


def mixture_row(model: nn.Module) -> Mapping[str, float]:
    """Two numbers of the mixtures for metrics.csv, means over the layers; nothing without compound batch norm.

    Effective components fall to 1 when one takes all, distances to 0 when all are the same. Both come from the buffers,
    so that they cost nothing.
    """
    none = torch.zeros(0)
    found = [_describe(name, layer, none, none) for name, layer in _layers(model).items() if layer.components > 1]
    if not found:
        return {}
    return {
        "mixture/effective_components": sum(layer.effective_components for layer in found) / len(found),
        "mixture/distance": sum(layer.mean_distance or 0.0 for layer in found) / len(found),
    }


def _layers(model: nn.Module) -> dict[str, CompoundBatchNorm]:
    return {name: module for name, module in model.named_modules() if isinstance(module, CompoundBatchNorm)}


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
