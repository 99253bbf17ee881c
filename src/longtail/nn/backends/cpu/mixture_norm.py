"""The kernel in a compiled graph: the operator `longtail::mixture_norm`, which no compiler looks into."""

from typing import Any, cast

import torch
from torch import Tensor

from longtail.nn.backends.base import Mixture, Options
from longtail.nn.backends.cpu.backend import CpuBackend, allocate, dense, empty_statistics
from longtail.nn.readings import StatisticsSource


def normalise_in_graph(
    x: Tensor, groups: Tensor | None, mixture: Mixture, options: Options, momentum: float | Tensor
) -> tuple[Tensor, ...]:
    """The output; while training also the new prior, mean, variance, and whether the batch was accepted."""
    if not isinstance(momentum, Tensor):
        momentum = torch.full((), momentum)
    y, prior, mean, var, accepted, _ = mixture_norm(
        x,
        groups,
        *mixture,
        momentum,
        training=options.training,
        statistics=options.statistics,
        eps=options.eps,
        detach_responsibilities=options.detach_responsibilities,
        min_mass=options.min_mass,
        sample_variance=options.sample_variance,
        keep=torch.is_grad_enabled(),
    )
    return (y, prior, mean, var, accepted) if options.training else (y,)


@torch.library.custom_op("longtail::mixture_norm", mutates_args=())
def mixture_norm(
    x: Tensor,
    groups: Tensor | None,
    prior: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: Tensor,
    *,
    training: bool,
    statistics: str,
    eps: float,
    detach_responsibilities: bool,
    min_mass: float,
    sample_variance: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The output, the new statistics (meaningless in eval), whether they were accepted, and what is kept."""
    mixture = Mixture(prior, mean, var, weight, bias)
    source = cast("StatisticsSource", statistics)
    options = Options(training, source, eps, detach_responsibilities, min_mass, sample_variance)
    out = empty_statistics(mixture)
    y, accepted, (_, kept, *_) = CpuBackend.forward(x, groups, mixture, options, momentum, keep=keep, out=out)
    assert kept is not None
    return y, *out, torch.tensor(accepted is not False), kept


@mixture_norm.register_fake
def _(x: Tensor, groups: Tensor | None, *tensors: Any, **named: Any) -> tuple[Tensor, ...]:
    mixture = Mixture(*tensors[:5])
    options = Options(named["training"], named["statistics"], 0.0, False, 0.0, False)
    y, kept = allocate(dense(x), len(mixture.prior), groups is not None, options, keep=named["keep"])
    return y, *empty_statistics(mixture), x.new_empty((), dtype=torch.bool), kept


@torch.library.custom_op("longtail::mixture_norm_backward", mutates_args=())
def mixture_norm_backward(
    grad: Tensor,
    x: Tensor,
    kept: Tensor,
    weight: Tensor | None,
    groups: Tensor | None,
    components: int,
    training: bool,
    statistics: str,
    detach_responsibilities: bool,
    needs_input: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x (empty unless it is needed), γ and β."""
    del components  # for the shapes of the results alone
    options = Options(training, cast("StatisticsSource", statistics), 0.0, detach_responsibilities, 0.0, False)
    saved = (dense(x), kept, weight, groups, None)
    grad_x, grad_weight, grad_bias = CpuBackend.backward(grad, saved, options, needs_input=needs_input)
    assert grad_weight is not None
    assert grad_bias is not None
    # An operator's results must not share memory.
    return x.new_empty(0) if grad_x is None else grad_x, grad_weight.clone(), grad_bias.clone()


@mixture_norm_backward.register_fake
def _(_grad: Tensor, x: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    _, _, _, components, *_, needs_input = others
    rows = (components, x.shape[1])
    grad_x = torch.empty_like(dense(x)) if needs_input else x.new_empty(0)
    return grad_x, x.new_empty(rows), x.new_empty(rows)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any) -> None:
    x, groups, prior, _, _, weight, *_ = inputs
    named = keyword_only_inputs
    ctx.constants = len(prior), named["training"], named["statistics"], named["detach_responsibilities"]
    ctx.save_for_backward(x, output[-1], weight, groups)


def _backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    needs_x, needs_weight, needs_bias = (ctx.needs_input_grad[i] for i in (0, 5, 6))
    grad_x, grad_weight, grad_bias = mixture_norm_backward(grad, *ctx.saved_tensors, *ctx.constants, needs_x)
    affine = grad_weight if needs_weight else None, grad_bias if needs_bias else None
    return grad_x if needs_x else None, None, None, None, None, *affine, None


mixture_norm.register_autograd(_backward, setup_context=_setup_context)
