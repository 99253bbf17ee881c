"""Which calls a kernel takes over from the eager path, and how: the one place that imports `longtail.nn.kernels`.

A kernel computes what the eager path computes, on a CPU in float32, unless LONGTAIL_KERNELS=0 is in the environment.
What is to be exported as a graph of plain operations always takes the eager path.
"""

import torch
from torch import Tensor

from longtail.nn.functional.options import Mixture, Options
from longtail.nn.kernels import mixture_norm as kernel
from longtail.nn.kernels.autograd import FusedMixtureNorm, mixture_norm

Statistics = tuple[Tensor, Tensor, Tensor]


def has_kernel(x: Tensor, mixture: Mixture, options: Options) -> bool:
    """Whether a kernel takes this call. Ranks are heard between its steps: in a compiled graph it cannot."""
    return kernel.takes(x, mixture) and not (options.synchronize and torch.compiler.is_compiling())


def fused(
    x: Tensor, groups: Tensor | None, mixture: Mixture, options: Options, new: Statistics, momentum: float
) -> tuple[Tensor, bool]:
    """Normalise in eager mode, by the split path where there are groups.

    While training, the new statistics are written to `new`, which may be those of the mixture itself. Returns the
    output and whether the batch was accepted.
    """
    accepted: list[bool] = []
    groups = None if groups is None else groups.long().contiguous()
    y = FusedMixtureNorm.apply(x, mixture.weight, mixture.bias, groups, mixture[:3], new, options, momentum, accepted)
    return y, accepted[0]


def fused_in_graph(
    x: Tensor, groups: Tensor | None, mixture: Mixture, options: Options
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Normalise in a compiled graph: the output and the batch's mass, mean and variance (meaningless in eval)."""
    prior, mean, var, weight, bias = mixture
    groups = None if groups is None else groups.long().contiguous()
    keep = torch.is_grad_enabled()
    y, kept = mixture_norm(x, weight, bias, groups, prior, mean, var, *options[:6], keep)
    return y, kernel.moments_of(kept, *mean.shape)
