"""Choose the backend of a call and run it: the one place that knows all three.

| Backend | Takes |
|---|---|
| `cpu` | float32 on a CPU, up to 8 components, where the compiled kernel was built |
| `cuda` | float32 on CUDA, up to 8 components, where Triton is installed |
| `eager` | the rest: other dtypes and devices, and what is traced, compiled for CUDA or exported |

LONGTAIL_KERNELS=0 in the environment leaves everything to `eager`.
"""

import functools
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from longtail.nn.backends.base import Backend, Mixture, MixtureStatistics, Options, Statistics
from longtail.nn.backends.cpu import backend as cpu
from longtail.nn.backends.cpu.library import MAX_COMPONENTS, turned_off
from longtail.nn.backends.cpu.mixture_norm import normalise_in_graph
from longtail.nn.backends.eager import EagerBackend


def normalise(
    x: Tensor,
    groups: Tensor | None,
    mixture: Mixture,
    options: Options,
    momentum: float | Tensor,
    *,
    out: Statistics | None = None,
) -> tuple[Tensor, MixtureStatistics]:
    """The output, and the statistics after the batch.

    Args:
        x: input, (N, C) or (N, C, ...).
        groups: the group of each sample, (N,), for the split path; None for the compound path.
        mixture: statistics and affine parameters.
        options: what is fixed for the call.
        momentum: the share of the batch in the new statistics.
        out: tensors to write the new prior, mean and variance to, such as a layer's buffers; they may be the old ones.
    """
    _check_shapes(x, groups, mixture, options)
    groups = None if groups is None else groups.long().contiguous()
    backend = choose_backend(x, mixture, options)
    if backend is cpu.CpuBackend and torch.compiler.is_compiling():
        y, *new = normalise_in_graph(x, groups, mixture, options, momentum)
    else:
        result = MixtureNorm.apply(backend, x, groups, *mixture, options, momentum, out)
        y, *new = result if isinstance(result, tuple) else (result,)
    if options.relu and (torch.compiler.is_compiling() or not backend.fuses_relu):
        y = y.relu()
    if not new:  # in eval
        return y, MixtureStatistics(*mixture[:3], True)
    if len(new) > 1 and out is not None:
        with torch.no_grad():
            for target, value in zip(out, new, strict=False):
                target.copy_(value)
    return y, MixtureStatistics(*new) if out is None else MixtureStatistics(*out, accepted=new[-1])


def choose_backend(x: Tensor, mixture: Mixture, options: Options) -> type[Backend]:
    """Who takes this call."""
    if cpu.takes(x, mixture):
        # The ranks are summed over between its steps, which one operator of a compiled graph cannot do.
        in_graph = options.sums_over_ranks and torch.compiler.is_compiling()
        return EagerBackend if in_graph else cpu.CpuBackend
    # A compiler makes its own kernels of plain operations.
    if not x.is_cuda or torch.compiler.is_compiling() or x.dtype != torch.float32 or not x.numel():
        return EagerBackend
    return _cuda_backend() if mixture.mean.shape[0] <= MAX_COMPONENTS else EagerBackend


@functools.cache
def _cuda_backend() -> type[Backend]:
    if turned_off() or find_spec("triton") is None:
        return EagerBackend
    from longtail.nn.backends.cuda import CudaBackend  # Triton is not installed everywhere

    return CudaBackend


class MixtureNorm(torch.autograd.Function):
    """A backend's two methods as one differentiable function of x, γ and β."""

    @staticmethod
    def forward(
        ctx: Any,
        backend: type[Backend],
        x: Tensor,
        groups: Tensor | None,
        prior: Tensor,
        mean: Tensor,
        var: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        options: Options,
        momentum: float | Tensor,
        out: Statistics | None,
    ) -> Any:
        """The output, and the new statistics if there are any, through which no gradient flows."""
        keep = any(ctx.needs_input_grad)
        mixture = Mixture(prior, mean, var, weight, bias)
        y, new, saved = backend.forward(x, groups, mixture, options, momentum, keep=keep, out=out)
        if keep:
            ctx.backend, ctx.options = backend, options
            ctx.save_for_backward(*saved)
        if isinstance(new, MixtureStatistics):
            ctx.mark_non_differentiable(*(value for value in new if isinstance(value, Tensor)))
            return y, *new
        return y if new is None else (y, new)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        """The gradients of x, γ and β."""
        needs = ctx.needs_input_grad
        grad_x, grad_weight, grad_bias = ctx.backend.backward(
            grad, ctx.saved_tensors, ctx.options, needs_input=needs[1]
        )
        affine = grad_weight if needs[6] else None, grad_bias if needs[7] else None
        return None, grad_x, None, None, None, None, *affine, None, None, None


def _check_shapes(x: Tensor, groups: Tensor | None, mixture: Mixture, options: Options) -> None:
    components, channels = mixture.mean.shape
    if groups is not None and groups.shape != x.shape[:1]:
        raise ValueError(f"groups must hold one group number a sample, ({len(x)},), got shape {tuple(groups.shape)}")
    if x.dim() < 2 or x.shape[1] != channels:
        raise ValueError(f"x must be (N, {channels}) or (N, {channels}, ...), got shape {tuple(x.shape)}")
    if not x.is_floating_point():
        raise ValueError(f"x must be a floating-point tensor, got {x.dtype}")
    if mixture.prior.shape != (components,) or mixture.var.shape != mixture.mean.shape:
        raise ValueError(
            f"prior must be ({components},) and var {tuple(mixture.mean.shape)} for a mean of that shape, "
            f"got {tuple(mixture.prior.shape)} and {tuple(mixture.var.shape)}"
        )
    by_batch = options.training and options.statistics == "batch"
    if by_batch and not options.synchronize and x.numel() < 2 * channels:
        raise ValueError(
            f"x must have more than one value a channel to train on batch statistics, got shape {tuple(x.shape)}; "
            "use a larger batch, a reading with other statistics, or eval mode"
        )
