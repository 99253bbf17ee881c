"""The Triton passes as a differentiable function with the interface of `longtail.nn.functional.mixture_norm`.

What is of size (M, C) is that module's arithmetic, with the same names; only the passes over the points are others.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from longtail.nn.functional.mixture import log_density, moments
from longtail.nn.functional.mixture_norm import (
    MixtureNorm,
    affine_map,
    as_points,
    is_live,
    mean_of_batch,
    sum_over_ranks,
)
from longtail.nn.functional.options import Options
from longtail.nn.kernels.triton_mixture_norm import Passes


class TritonMixtureNorm(MixtureNorm):
    """(x, γ, β, w or None, τ, μ, σ²) -> (y, mass, batch mean, batch variance), all float32."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        assigned: Tensor | None,
        prior: Tensor,
        mean: Tensor,
        var: Tensor,
        options: Options,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Estimate and normalise; the moments are the batch's over all ranks, and zero in eval."""
        points = as_points(x).contiguous()
        shift = mean_of_batch(points, options) if options.batch_statistics else prior @ mean
        passes = Passes(points, shift, len(prior))
        mean = mean - shift
        density = log_density(prior, mean, var, eps=options.eps, temperature=options.temperature)
        inverse = (var + options.eps).rsqrt()
        w = passes.estimate(*density) if assigned is None else assigned.to(x.dtype).contiguous()
        mass, first, second = torch.zeros_like(prior), torch.zeros_like(mean), torch.zeros_like(mean)
        if options.training:
            mass, (first, second) = w.sum(1), passes.sums(w)
            sum_over_ranks(mass, first, second, options=options)
        batch_mean, batch_var = moments(mass, first, second)
        if options.batch_statistics:
            live = is_live(mass, options)
            mean, var = torch.where(live, batch_mean, mean), torch.where(live, batch_var, var)
            inverse = (var + options.eps).rsqrt()
        scale, offset = affine_map(weight, bias, mean, inverse)
        y = _like(x, passes.transform(w, scale, offset))
        batch_mean = batch_mean + shift
        ctx.options = options
        ctx.through_weights = assigned is None and not options.detach_responsibilities
        ctx.save_for_backward(
            x, w, weight, scale, offset, shift, density.linear, density.quadratic, mass, mean, inverse
        )
        ctx.mark_non_differentiable(mass, batch_mean, batch_var)
        return y, mass, batch_mean, batch_var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of x, γ and β."""
        x, w, weight, scale, offset, shift, linear, quadratic, mass, mean, inverse = ctx.saved_tensors
        options: Options = ctx.options
        grads = as_points(grad).contiguous()
        passes = Passes(as_points(x).contiguous(), shift, len(mass))
        r0, r1 = passes.sums(w, grads)
        grad_weight, grad_bias = (r1 - mean * r0) * inverse, r0.clone()
        if not ctx.needs_input_grad[0]:
            return None, grad_weight, grad_bias, None, None, None, None, None

        g0, g1, g2 = torch.zeros_like(mass), torch.zeros_like(mean), torch.zeros_like(mean)
        if options.batch_statistics:
            r0, r1 = r0.contiguous(), r1.contiguous()
            sum_over_ranks(r0, r1, options=options)
            per_point = is_live(mass, options) / mass.clamp_min(options.min_mass)[:, None]
            grad_mean = -scale * r0 * per_point
            g2 = -0.5 * weight * (r1 - mean * r0) * inverse**3 * per_point
            g1 = grad_mean - 2 * mean * g2
            g0 = -(grad_mean * mean + g2 * (inverse**-2 - options.eps - mean.square())).sum(1)
        h = None
        if ctx.through_weights:
            h = passes.log_weight_gradient(grads, w, (scale, offset), (g0, g1, g2))
        result = passes.input_gradient(grads, w, h, (scale, g1, g2, linear, quadratic))
        return _like(x, result), grad_weight, grad_bias, None, None, None, None, None


def _like(x: Tensor, points: Tensor) -> Tensor:
    """Points as a tensor of the shape and layout of x."""
    last = points.view(x.movedim(1, -1).shape).movedim(-1, 1)
    return last if x.movedim(1, -1).is_contiguous() else torch.empty_like(x).copy_(last)
