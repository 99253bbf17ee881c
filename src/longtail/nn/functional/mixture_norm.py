"""Normalise a tensor by a mixture of Gaussians: one differentiable operation that saves little.

    y_i = Σ_j w_ij (γ_j (x_i - μ_j) / σ_j + β_j) = x_i ⊙ (w_i A) + w_i B,   A = γ/σ,  B = β - γμ/σ

Written with autograd, this would keep half a dozen tensors of the input's size until the backward pass. As one
operation with its own gradient it keeps the input and the weights w, and computes the rest anew. The gradient,
with g = ∂L/∂y, everything centred and w component-major (M, N) as in `mixture`:

    sums      R0 = wg = ∂L/∂β,  R1 = w(g ⊙ x),  ∂L/∂γ = (R1 - μ R0)/σ
    batch     ∂L/∂μ = -A R0,  ∂L/∂σ² = -γ (R1 - μ R0) / 2σ³   (only where the batch's own moments normalise)
              G1 = (∂L/∂μ - 2μ ∂L/∂σ²)/mass,  G2 = ∂L/∂σ² / mass,  G0 = -Σ_d(∂L/∂μ μ + ∂L/∂σ² (σ² - μ²))/mass
    weights   ∂L/∂w = A(g ⊙ x)ᵀ + Bgᵀ + G1xᵀ + G2(x²)ᵀ + G0, through the softmax to h = ∂L/∂log-weights
    input     ∂L/∂x = g ⊙ (wᵀA) + x ⊙ 2(wᵀG2 + hᵀP) + wᵀG1 + hᵀQ,   Q, P the linear and quadratic coefficients
                                                                    of the log-density

On the CPU the points are worked through in blocks that stay in the cache.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from longtail.nn.functional.mixture import LogDensity, accumulation_dtype, log_density, moments, weigh
from longtail.nn.functional.options import Options

# Numbers in one block of rows: small enough for the cache, large enough to hide the cost of a call.
_BLOCK_ELEMENTS = 1 << 18

Affine = tuple[Tensor, Tensor]
Moments = tuple[Tensor, Tensor, Tensor]


@torch.library.custom_op("longtail::snapshot", mutates_args=())
def _snapshot(buffer: Tensor) -> Tensor:
    """Copy a buffer by an operation that no compiler looks into.

    A compiled backward pass may compute anew what is cheap to compute from the inputs, and so keep the buffers
    themselves. They change with each forward pass, and the dual path has several before its one backward pass.
    """
    return buffer.clone()


@_snapshot.register_fake
def _(buffer: Tensor) -> Tensor:
    return torch.empty_like(buffer)


class Passes:
    """The passes over the points of (N, C, ...) by torch's operations; `shift` is where the points are centred.

    Whatever has these methods may do them: see `longtail.nn.kernels.triton_mixture_norm`.
    """

    def __init__(self, x: Tensor, shift: Tensor) -> None:
        self.x, self.points, self.shift = x, as_points(x), shift

    def estimate(self, density: LogDensity) -> Tensor:
        """The responsibilities, (M, N)."""
        w = self.shift.new_empty(len(density.linear), self.points.shape[0])
        for block in _blocks(self.points):
            centred = self._centred(block)
            w[:, block] = weigh(centred, centred.square(), density)
        return w

    def sums(self, w: Tensor, grad: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The sums of wx and wx², or of wg and wgx, (M, C) each."""
        grads = None if grad is None else as_points(grad)
        first, second = (w.new_zeros(w.shape[0], self.points.shape[1]) for _ in range(2))
        for block in _blocks(self.points):
            centred = self._centred(block)
            left = centred if grads is None else grads[block].to(w.dtype)
            first.addmm_(w[:, block], left)
            second.addmm_(w[:, block], left * centred)
        return first, second

    def transform(self, w: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
        """The output, of the shape and layout of x."""
        y, points = _empty(self.x)
        for block in _blocks(points):
            wb = w[:, block].T
            points[block] = torch.mm(wb, scale).mul_(self._centred(block)).addmm_(wb, offset)
        return _filled(y, points)

    def input_gradient(
        self, grad: Tensor, w: Tensor, affine: Affine, from_moments: Moments, through: LogDensity | None
    ) -> Tensor:
        """The gradient of x; `affine` is A and B, `from_moments` G0, G1 and G2, `through` the density if w has one."""
        grads, (scale, offset), (g0, g1, g2) = as_points(grad), affine, from_moments
        to_slope, to_offset = 2 * g2, g1
        if through is not None:
            to_slope, to_offset = torch.cat([2 * g2, 2 * through.quadratic]), torch.cat([g1, through.linear])
        result, points = _empty(self.x)
        for block in _blocks(points):
            g, centred, wb = grads[block].to(w.dtype), self._centred(block), w[:, block]
            mix = wb
            if through is not None:
                grad_w = torch.addmm(g0[:, None], scale, (g * centred).T)
                grad_w.addmm_(offset, g.T).addmm_(g1, centred.T).addmm_(g2, centred.square().T)
                mix = torch.cat([wb, wb * (grad_w - (wb * grad_w).sum(0))])
            found = torch.mm(mix.T, to_slope).mul_(centred).addmm_(mix.T, to_offset)
            points[block] = found.addcmul_(g, wb.T @ scale)
        return _filled(result, points)

    def _centred(self, block: slice) -> Tensor:
        return self.points[block].to(self.shift.dtype) - self.shift


class MixtureNorm(torch.autograd.Function):
    """(x, γ, β, w or None, τ, μ, σ²) -> (y, mass, batch mean, batch variance); see the module."""

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
        kind: type[Passes],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Estimate and normalise; the moments are the batch's over all ranks, and zero in eval."""
        if options.training and torch.compiler.is_compiling():
            prior, mean, var = _snapshot(prior), _snapshot(mean), _snapshot(var)
        with torch.autocast(x.device.type, enabled=False):
            shift = _mean_of_batch(as_points(x), options) if options.batch_statistics else prior @ mean
            passes = kind(x, shift)
            mean = mean - shift
            density = log_density(prior, mean, var, eps=options.eps, temperature=options.temperature)
            w = passes.estimate(density) if assigned is None else assigned.to(shift.dtype)
            mass, first, second = torch.zeros_like(prior), torch.zeros_like(mean), torch.zeros_like(mean)
            if options.training:
                mass, (first, second) = w.sum(1), passes.sums(w)
                _sum_over_ranks(mass, first, second, options=options)
            batch_mean, batch_var = moments(mass, first, second)
            if options.batch_statistics:
                live = _is_live(mass, options)
                mean, var = torch.where(live, batch_mean, mean), torch.where(live, batch_var, var)
            inverse = (var + options.eps).rsqrt()
            scale = weight * inverse
            offset = bias - scale * mean
            y = passes.transform(w, scale, offset)
            batch_mean = batch_mean + shift
        ctx.options, ctx.kind = options, kind
        ctx.through_weights = assigned is None and not options.detach_responsibilities
        ctx.save_for_backward(x, w, weight, scale, offset, shift, *density, mass, mean, inverse)
        ctx.mark_non_differentiable(mass, batch_mean, batch_var)
        return y, mass, batch_mean, batch_var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of x, γ and β."""
        x, w, weight, scale, offset, shift, *coefficients, mass, mean, inverse = ctx.saved_tensors
        options: Options = ctx.options
        with torch.autocast(x.device.type, enabled=False):
            passes = ctx.kind(x, shift)
            r0, r1 = passes.sums(w, grad)
            gradients = (r1 - mean * r0) * inverse, r0.clone(), None, None, None, None, None, None
            if not ctx.needs_input_grad[0]:
                return None, *gradients

            g0, g1, g2 = torch.zeros_like(mass), torch.zeros_like(mean), torch.zeros_like(mean)
            if options.batch_statistics:
                _sum_over_ranks(r0, r1, options=options)
                per_point = _is_live(mass, options) / mass.clamp_min(options.min_mass)[:, None]
                grad_mean = -scale * r0 * per_point
                g2 = -0.5 * weight * (r1 - mean * r0) * inverse**3 * per_point
                g1 = grad_mean - 2 * mean * g2
                var = inverse**-2 - options.eps
                g0 = -(grad_mean * mean + g2 * (var - mean.square())).sum(1)
            through = LogDensity(*coefficients) if ctx.through_weights else None
            return passes.input_gradient(grad, w, (scale, offset), (g0, g1, g2), through), *gradients


def as_points(x: Tensor) -> Tensor:
    """The points of (N, C, ...) as rows: a view of a channels_last tensor, a copy of any other."""
    return x.movedim(1, -1).flatten(0, -2)


def _empty(x: Tensor) -> tuple[Tensor, Tensor]:
    """A tensor of the layout of x and the rows to write its points into: its own where they are a view."""
    result = torch.empty_like(x)
    last = result.movedim(1, -1)
    return result, (last if last.is_contiguous() else last.new_empty(last.shape)).flatten(0, -2)


def _filled(result: Tensor, points: Tensor) -> Tensor:
    """The result of `_empty` once its points are written."""
    last = result.movedim(1, -1)
    if not last.is_contiguous():
        last.copy_(points.view(last.shape))
    return result


def _blocks(points: Tensor) -> list[slice]:
    """Cut the points into blocks that fit the cache; elsewhere than in eager mode on the CPU, one block."""
    if points.device.type != "cpu" or torch.compiler.is_compiling():
        return [slice(None)]
    step = max(1, _BLOCK_ELEMENTS // points.shape[1])
    return [slice(start, start + step) for start in range(0, points.shape[0], step)]


def _is_live(mass: Tensor, options: Options) -> Tensor:
    """Which components have enough mass in the batch for moments of their own, (M, 1)."""
    return (mass >= options.min_mass)[:, None]


def _mean_of_batch(points: Tensor, options: Options) -> Tensor:
    """The mean of all points of all ranks: the common shift."""
    total = points.sum(0, dtype=accumulation_dtype(points))
    count = torch.full_like(total[:1], points.shape[0])
    _sum_over_ranks(total, count, options=options)
    return total / count.clamp_min(1)


def _sum_over_ranks(*tensors: Tensor, options: Options) -> None:
    """Sum each tensor over the ranks, in place."""
    if options.synchronize and options.training:
        for tensor in tensors:
            dist.all_reduce(tensor, group=options.process_group)
