"""The kernel as a differentiable function: in eager mode an autograd function, which costs least to call; in a compiled
graph the operator `longtail::mixture_norm`, which no compiler looks into.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from longtail.nn.functional.options import Mixture, Options
from longtail.nn.kernels import mixture_norm as kernel


class FusedMixtureNorm(torch.autograd.Function):
    """(x, γ, β) -> y; the statistics that come in are overwritten with the new ones, or they go to `new`."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        groups: Tensor | None,
        statistics: tuple[Tensor, Tensor, Tensor],
        new: tuple[Tensor, Tensor, Tensor],
        options: Options,
        momentum: float,
        accepted: list[bool],
    ) -> Tensor:
        """Normalise and update; appends to `accepted` whether the batch was."""
        x = kernel.dense(x)
        keep = any(ctx.needs_input_grad)
        y, kept, good = kernel.forward(
            x,
            groups,
            Mixture(*statistics, weight, bias),
            options,
            keep_weights=keep,
            momentum=momentum,
            new=new,
        )
        accepted.append(good)
        if keep:
            ctx.options, ctx.components = options, len(statistics[0])
            ctx.save_for_backward(x, kept, weight, groups, y if options.relu else None)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of x, γ and β."""
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad_x, grad_weight, grad_bias = kernel.backward(
            grad, *ctx.saved_tensors, components=ctx.components, options=ctx.options, needs_input=needs_x
        )
        gradients = (
            grad_x if needs_x else None,
            grad_weight if needs_weight else None,
            grad_bias if needs_bias else None,
        )
        return *gradients, None, None, None, None, None, None


@torch.library.custom_op("longtail::mixture_norm", mutates_args=())
def mixture_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    groups: Tensor | None,
    prior: Tensor,
    mean: Tensor,
    var: Tensor,
    training: bool,
    batch_statistics: bool,
    eps: float,
    temperature: float,
    detach_responsibilities: bool,
    min_mass: float,
    keep_weights: bool,
) -> tuple[Tensor, Tensor]:
    """The output and what is kept, in a compiled graph; the statistics are left to the graph."""
    options = Options(training, batch_statistics, eps, temperature, detach_responsibilities, min_mass, False, None)
    mixture = Mixture(prior, mean, var, weight, bias)
    return kernel.forward(kernel.dense(x), groups, mixture, options, keep_weights=keep_weights)[:2]


@mixture_norm.register_fake
def _(x: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    _, _, groups, prior, _, _, *settings, keep_weights = others
    options = Options._make([*settings, False, None, False])
    return kernel.allocate(kernel.dense(x), len(prior), groups is not None, options, keep_weights=keep_weights)


@torch.library.custom_op("longtail::mixture_norm_backward", mutates_args=())
def mixture_norm_backward(
    grad: Tensor,
    x: Tensor,
    kept: Tensor,
    weight: Tensor | None,
    groups: Tensor | None,
    components: int,
    batch_statistics: bool,
    eps: float,
    detach_responsibilities: bool,
    min_mass: float,
    needs_input: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, γ and β."""
    options = Options(True, batch_statistics, eps, 1.0, detach_responsibilities, min_mass, False, None)
    grad_x, grad_weight, grad_bias = kernel.backward(
        grad,
        kernel.dense(x),
        kept,
        weight,
        groups,
        None,
        components=components,
        options=options,
        needs_input=needs_input,
    )
    return grad_x, grad_weight.clone(), grad_bias.clone()  # an operator's results must not share memory


@mixture_norm_backward.register_fake
def _(_grad: Tensor, x: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    _, _, _, components, *_, needs_input = others
    rows = (components, x.shape[1])
    grad_x = torch.empty_like(kernel.dense(x)) if needs_input else x.new_empty(0)
    return grad_x, x.new_empty(rows), x.new_empty(rows)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, _, groups, prior, _, _, _, batch_statistics, eps, _, detach, min_mass, _ = inputs
    ctx.constants = len(prior), batch_statistics, eps, detach, min_mass
    ctx.save_for_backward(x, output[1], weight, groups)


def _backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
    grad_x, grad_weight, grad_bias = mixture_norm_backward(grad, *ctx.saved_tensors, *ctx.constants, needs_x)
    gradients = grad_x if needs_x else None, grad_weight if needs_weight else None, grad_bias if needs_bias else None
    return *gradients, *[None] * 11


mixture_norm.register_autograd(_backward, setup_context=_setup_context)
