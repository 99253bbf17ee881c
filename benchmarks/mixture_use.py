"""What a trained network makes of its mixture: is it used, and does it know what the split path is told?

    python -m benchmarks.mixture_use runs/ladder/NAME ...

Balanced accuracy on the run's own test split, all weights and statistics kept, with responsibilities

- as they are,
- that ignore the point: every w is the prior τ, so that each layer is one affine map, as batch norm is,
- that are sure: 1 for the component of the highest density,
- of an oracle: 1 for the component of the image's true class group, which the split path is told in training;

and what a component tells about the class, I(class; component) in bits with all classes alike, mean over the layers, of
at most log2 M: by the usage that the run recorded of training images.
"""

import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from scipy.stats import entropy
from torch import Tensor, nn

from benchmarks._trained import load_trained, recalls, record_runs
from longtail.methods import CompoundBN
from longtail.nn import CompoundBatchNorm
from longtail.training.run_folder.diagnostics import read_diagnostics

IGNORANT, SURE = 1e9, 1e-3  # temperatures


def information(usage: Sequence[Sequence[float]]) -> float:
    """I(class; component) in bits, from the mean responsibilities (K, M), all classes alike."""
    mean = [statistics.fmean(column) for column in zip(*usage, strict=True)]
    return float(entropy(mean, base=2)) - statistics.fmean(float(entropy(row, base=2)) for row in usage)


def set_temperature(model: nn.Module, temperature: float) -> None:
    """Soften or sharpen the responsibilities of all layers."""
    for layer in _layers(model):
        layer.temperature = temperature


def tell_groups(model: nn.Module, groups: Tensor) -> None:
    """Let each layer normalise each image by the running statistics of the component of its group."""
    for layer in _layers(model):
        layer.forward = partial(_by_group, layer, groups)  # type: ignore[method-assign]  # on these instances alone


def _layers(model: nn.Module) -> list[CompoundBatchNorm]:
    return [module for module in model.modules() if isinstance(module, CompoundBatchNorm)]


def _by_group(layer: CompoundBatchNorm, groups: Tensor, x: Tensor) -> Tensor:
    assert layer.weight is not None
    assert layer.bias is not None

    def of_images(values: Tensor) -> Tensor:
        return values[groups].reshape(len(x), -1, *[1] * (x.dim() - 2))

    centred = x - of_images(layer.running_mean)
    y = centred * of_images(layer.weight / (layer.running_var + layer.eps).sqrt()) + of_images(layer.bias)
    return y.relu() if layer.activation == "relu" else y


def measure(run: Path) -> dict[str, float]:
    """All numbers of a run, accuracies as shares."""
    config, parts = load_trained(run)
    method = parts.method
    assert isinstance(method, CompoundBN)
    found = {"as trained": statistics.fmean(recalls(config, parts))}
    for name, temperature in (("ignoring the point", IGNORANT), ("sure", SURE)):
        set_temperature(method.model, temperature)
        found[name] = statistics.fmean(recalls(config, parts))
    told = recalls(config, parts, lambda target: tell_groups(method.model, method.groups[target]))
    found["true group"] = statistics.fmean(told)
    layers = read_diagnostics(run).mixture
    found["bits"] = statistics.fmean(information([row for row in layer.usage if row]) for layer in layers)
    return found


def main() -> None:
    """Measure runs and write their JSON."""
    record_runs("mixture_use", __doc__, measure)


if __name__ == "__main__":
    main()
