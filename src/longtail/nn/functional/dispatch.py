"""Which calls a kernel takes over from the eager path, and how: the one place that imports `longtail.nn.kernels`.

A kernel computes what the eager path computes, in float32: on a CPU the compiled one, on CUDA one in Triton, unless
LONGTAIL_KERNELS=0 is in the environment. What is to be exported as a graph of plain operations always takes the eager
path.
"""

import functools
from importlib.util import find_spec

import torch
from torch import Tensor

from longtail.nn.functional.mixture_norm import Passes
from longtail.nn.functional.options import Mixture, Options
from longtail.nn.kernels import mixture_norm as kernel
from longtail.nn.kernels.autograd import FusedMixtureNorm, mixture_norm
from longtail.nn.kernels.library import MAX_COMPONENTS, turned_off

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


def passes_for(x: Tensor, mixture: Mixture) -> type[Passes]:
    """Who goes over the points in `MixtureNorm`: Triton on CUDA; a compiler makes its own kernels of the plain ones."""
    if not x.is_cuda or torch.compiler.is_compiling() or x.dtype != torch.float32 or not x.numel():
        return Passes
    return _triton() if mixture.mean.shape[0] <= MAX_COMPONENTS else Passes


@functools.cache
def _triton() -> type[Passes]:
    if turned_off() or find_spec("triton") is None:
        return Passes
    from longtail.nn.kernels.triton_mixture_norm import TritonPasses  # Triton is not installed everywhere

    return TritonPasses
