"""How a trained network uses its mixture: does it need it, and does a component tell what the split path is told?

    python -m benchmarks.studies.compound_bn.mixture_use runs/ladder/NAME ...

Balanced accuracy on the run's own test split, with all weights and statistics kept, for the responsibilities

- `as trained`: as they are,
- `ignoring the point`: every w is the prior τ, so that each layer is one affine map, as batch norm is,
- `sure`: 1 for the component of the highest density,
- `true group`: 1 for the component of the image's class group, which the split path is told in training;

and `bits`, what a component tells about the class: I(class; component), at most log2 M, mean over the layers, from the
mean responsibilities of the test images of each class, all classes weighted alike.
"""

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from scipy.stats import entropy
from torch import Tensor, nn

from benchmarks.studies.compound_bn.finished_runs import load_trained, recalls, record_runs
from longtail.methods import CompoundBN
from longtail.nn import CompoundBatchNorm
from longtail.nn.functional import responsibilities

# From a layer and its points (B, P, C) to weights that broadcast to (B, P, M).
Weights = Callable[[CompoundBatchNorm, Tensor], Tensor]


def as_trained(layer: CompoundBatchNorm, points: Tensor) -> Tensor:
    """The responsibilities of the mixture."""
    return _posterior(layer, points, layer.prior)


def ignoring_the_point(layer: CompoundBatchNorm, points: Tensor) -> Tensor:
    """The priors."""
    return layer.prior.expand(*points.shape[:2], -1)


def sure(layer: CompoundBatchNorm, points: Tensor) -> Tensor:
    """1 for the component of the highest density, whatever its prior."""
    alike = torch.full_like(layer.prior, 1 / layer.components)
    return nn.functional.one_hot(_posterior(layer, points, alike).argmax(-1), layer.components).to(points.dtype)


def true_group(groups: Tensor) -> Weights:
    """1 for the component of each image's group."""

    def weights(layer: CompoundBatchNorm, points: Tensor) -> Tensor:
        return nn.functional.one_hot(groups, layer.components)[:, None].to(points.dtype)

    return weights


def weigh_by(model: nn.Module, weights: Weights) -> None:
    """Let all layers of a model in eval mode take these weights for their responsibilities."""
    for layer in _layers(model).values():
        layer.forward = partial(_forward, layer, weights)  # type: ignore[method-assign]  # on these instances alone


def _forward(layer: CompoundBatchNorm, weights: Weights, x: Tensor) -> Tensor:
    """The layer in eval mode, y = Σ_j w_j (γ_j (x - μ_j) / σ_j + β_j), with w as given."""
    assert layer.weight is not None
    assert layer.bias is not None
    points = x.movedim(1, -1)
    w = weights(layer, points.flatten(1, -2))
    scale = layer.weight * (layer.running_var + layer.eps).rsqrt()
    shift = layer.bias - scale * layer.running_mean
    y = (points.flatten(1, -2) * (w @ scale) + w @ shift).view_as(points).movedim(-1, 1)
    return y.relu() if layer.activation == "relu" else y


def _posterior(layer: CompoundBatchNorm, points: Tensor, prior: Tensor) -> Tensor:
    w = responsibilities(points.flatten(0, 1), prior, layer.running_mean, layer.running_var, eps=layer.eps)
    return w.view(*points.shape[:2], -1)


def _layers(model: nn.Module) -> dict[str, CompoundBatchNorm]:
    return {name: module for name, module in model.named_modules() if isinstance(module, CompoundBatchNorm)}


def information(usage: Sequence[Sequence[float]]) -> float:
    """I(class; component) in bits, from the mean responsibilities (K, M), all classes alike."""
    mean = [statistics.fmean(column) for column in zip(*usage, strict=True)]
    return float(entropy(mean, base=2)) - statistics.fmean(float(entropy(row, base=2)) for row in usage)


class Usage:
    """Sums the responsibilities of each layer by class while images pass through the model.

    Args:
        model: with compound batch norms.
        classes: K.
    """

    def __init__(self, model: nn.Module, classes: int) -> None:
        self.target = torch.empty(0, dtype=torch.long)
        self.images = torch.zeros(classes)
        self.sums = {name: torch.zeros(classes, layer.components) for name, layer in _layers(model).items()}
        self._hooks = [
            layer.register_forward_pre_hook(partial(self._add, name)) for name, layer in _layers(model).items()
        ]

    def start_batch(self, target: Tensor) -> None:
        """Take the labels of the next batch."""
        self.target = target
        self.images.index_add_(0, target, torch.ones(len(target)))

    def _add(self, name: str, layer: nn.Module, inputs: tuple[Tensor]) -> None:
        assert isinstance(layer, CompoundBatchNorm)
        points = inputs[0].movedim(1, -1).flatten(1, -2)
        self.sums[name].index_add_(0, self.target, as_trained(layer, points).mean(1))

    def bits(self) -> float:
        """The mean over the layers of what a component tells about the class; ends the counting."""
        for hook in self._hooks:
            hook.remove()
        return statistics.fmean(information((sums / self.images[:, None]).tolist()) for sums in self.sums.values())


def measure(run: Path) -> dict[str, float]:
    """All numbers of a run, accuracies as shares."""
    parts = load_trained(run)
    method = parts.method
    assert isinstance(method, CompoundBN)
    usage = Usage(method.model, len(parts.data.classes))
    found = {"as trained": statistics.fmean(recalls(parts, usage.start_batch))}
    bits = usage.bits()
    for name, weights in (("ignoring the point", ignoring_the_point), ("sure", sure)):
        weigh_by(method.model, weights)
        found[name] = statistics.fmean(recalls(parts))
    told = recalls(parts, lambda target: weigh_by(method.model, true_group(method.groups[target])))
    return found | {"true group": statistics.fmean(told), "bits": bits}


def main() -> None:
    """Measure runs and append their records."""
    record_runs("mixture_use", __doc__, measure)


if __name__ == "__main__":
    main()
