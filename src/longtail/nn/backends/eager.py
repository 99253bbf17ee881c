"""The layer by torch's own operations: the backend for every device, dtype and compiler.

    y_i = Σ_j w_ij (γ_j (x_i - μ_j) / σ_j + β_j) = x_i ⊙ (w_i A) + w_i B,   A = γ/σ,  B = β - γμ/σ

Written with autograd, this would keep half a dozen tensors of the input's size until the backward pass. As one
operation with its own gradient it keeps the input and the weights w, and computes the rest anew. The gradient,
with g = ∂L/∂y, everything centred and w component-major (M, N) as in `responsibilities`:

    sums      R0 = wg = ∂L/∂β,  R1 = w(g ⊙ x),  ∂L/∂γ = (R1 - μ R0)/σ
    moments   ∂L/∂μ = -A R0,  ∂L/∂σ² = -γ (R1 - μ R0) / 2σ³,  and with the batch's mean m and variance v
              G2 = s' ∂L/∂σ²,  G1 = s ∂L/∂μ - 2m G2,  G0 = -Σ_d(s ∂L/∂μ m + G2 (v - m²))
    weights   ∂L/∂w = A(g ⊙ x)ᵀ + Bgᵀ + G1xᵀ + G2(x²)ᵀ + G0, through the softmax to h = ∂L/∂log-weights
    input     ∂L/∂x = g ⊙ (wᵀA) + x ⊙ 2(wᵀG2 + hᵀP) + wᵀG1 + hᵀQ,   Q, P the linear and quadratic coefficients
                                                                    of the log-density

The readings differ in s = share/mass, where share is what the batch's moments have in those that normalise: 1 if these
are the batch's, 0 if they are the running ones, and the momentum if they are the updated ones. s' is s, but for the
factor N/(N - 1) if updated variances are sample variances.

On the CPU the points are worked through in blocks that stay in the cache.
"""

from typing import ClassVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from longtail.nn.backends.base import (
    Mixture,
    Options,
    Saved,
    Statistics,
    Update,
    accumulate,
    is_live,
    variance_factor,
)
from longtail.nn.responsibilities import LogDensity, accumulation_dtype, log_density, moments, weigh

# Numbers in one block of rows: small enough for the cache, large enough to hide the cost of a call.
_BLOCK_ELEMENTS = 1 << 18
# Rows that say where the points are, at least.
_SAMPLE_ROWS = 128

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

    Whatever has these methods may do them: see `longtail.nn.backends.cuda`.
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


class EagerBackend:
    """Torch's operations, on any device and in float32 or float64; what is traced, compiled or exported takes it."""

    fuses_relu: ClassVar[bool] = False
    passes: ClassVar[type[Passes]] = Passes

    @classmethod
    def forward(
        cls,
        x: Tensor,
        groups: Tensor | None,
        mixture: Mixture,
        options: Options,
        momentum: float | Tensor,
        *,
        keep: bool,
        out: Statistics | None,
    ) -> tuple[Tensor, Update, Saved]:
        """See `Backend`."""
        del keep, out  # autograd frees what is not needed; the caller copies
        dtype = accumulation_dtype(x)
        prior, mean, var = (statistic.to(dtype) for statistic in mixture[:3])
        if options.training and torch.compiler.is_compiling():
            prior, mean, var = _snapshot(prior), _snapshot(mean), _snapshot(var)
        weight = torch.ones_like(mean) if mixture.weight is None else mixture.weight.to(dtype)
        bias = torch.zeros_like(mean) if mixture.bias is None else mixture.bias.to(dtype)
        split = groups is not None
        with torch.autocast(x.device.type, enabled=False):
            shift = _shift(as_points(x), prior @ mean, options)
            passes = cls.passes(x, shift)
            mean = mean - shift
            density = log_density(prior, mean, var, eps=options.eps)
            w = passes.estimate(density) if groups is None else _members(x, groups, len(prior)).to(dtype)
            to_mean = to_var = batch_mean = batch_var = torch.zeros_like(mean)
            new = None
            if options.training:
                mass, (first, second) = w.sum(1), passes.sums(w)
                _sum_over_ranks(mass, first, second, options=options)
                batch_mean, batch_var = moments(mass, first, second)
                new = accumulate(
                    mixture, mass, batch_mean + shift, batch_var, options=options, momentum=momentum, split=split
                )
                if options.statistics != "running":
                    live = is_live(mass, options.min_mass)[:, None]
                    share: float | Tensor = 1.0
                    factor = torch.ones_like(mass)
                    if options.statistics == "updated":
                        share = momentum.to(dtype) if isinstance(momentum, Tensor) else momentum
                        factor = variance_factor(mass, options, split=split).expand_as(mass)
                    to_mean = live * share / mass.clamp_min(torch.finfo(dtype).tiny)[:, None]
                    to_var = to_mean * factor[:, None]
                    mean = torch.where(live, torch.lerp(mean, batch_mean, share), mean)
                    var = torch.where(live, torch.lerp(var, batch_var * factor[:, None], share), var)
            inverse = (var + options.eps).rsqrt()
            scale = weight * inverse
            offset = bias - scale * mean
            y = passes.transform(w, scale, offset)
        saved = (x, w, weight, scale, offset, shift, *density, mean, inverse, batch_mean, batch_var, to_mean, to_var)
        return y, new, saved

    @classmethod
    def backward(cls, grad: Tensor, saved: Saved, options: Options, *, needs_input: bool) -> tuple[Tensor | None, ...]:
        """See `Backend`."""
        tensors = cast("tuple[Tensor, ...]", saved)
        x, w, weight, scale, offset, shift, *coefficients, mean, inverse, batch_mean, batch_var, to_mean, to_var = (
            tensors
        )
        with torch.autocast(x.device.type, enabled=False):
            passes = cls.passes(x, shift)
            r0, r1 = passes.sums(w, grad)
            grad_weight, grad_bias = (r1 - mean * r0) * inverse, r0.clone()
            if not needs_input:
                return None, grad_weight, grad_bias
            g0, g1, g2 = torch.zeros_like(mean[:, 0]), torch.zeros_like(mean), torch.zeros_like(mean)
            if options.moments_first:
                _sum_over_ranks(r0, r1, options=options)
                grad_mean = -scale * r0 * to_mean
                g2 = -0.5 * weight * (r1 - mean * r0) * inverse**3 * to_var
                g1 = grad_mean - 2 * batch_mean * g2
                g0 = -(grad_mean * batch_mean + g2 * (batch_var - batch_mean.square())).sum(1)
            through = None if options.detach_responsibilities else LogDensity(*coefficients)
            return passes.input_gradient(grad, w, (scale, offset), (g0, g1, g2), through), grad_weight, grad_bias


def as_points(x: Tensor) -> Tensor:
    """The points of (N, C, ...) as rows: a view of a channels_last tensor, a copy of any other."""
    return x.movedim(1, -1).flatten(0, -2)


def _members(x: Tensor, groups: Tensor, components: int) -> Tensor:
    """Which component each point belongs to, (M, N)."""
    members = groups == torch.arange(components, device=groups.device)[:, None]
    return members[:, :, None].expand(-1, -1, x.shape[2:].numel()).flatten(1)


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


def _shift(points: Tensor, running: Tensor, options: Options) -> Tensor:
    """Where the points are centred: near them while training, and by the statistics alone in eval.

    Any value near the points keeps their variance in float32. Where the batch's moments normalise it is the mean of all
    points. Where the running ones do, a sample serves and saves a pass, and a NaN or infinity in it must not reach the
    other points: these are left out of it.
    """
    if not options.training:
        return running
    robust = options.statistics == "running"
    if robust:
        points = points[:: max(1, points.shape[0] // _SAMPLE_ROWS)].to(running.dtype)
        points = torch.where(torch.isfinite(points), points, running)
    total = points.sum(0, dtype=running.dtype)
    count = torch.full_like(total[:1], points.shape[0])
    _sum_over_ranks(total, count, options=options)
    mean = total / count.clamp_min(1)
    return torch.where(torch.isfinite(mean), mean, running) if robust else mean


def _sum_over_ranks(*tensors: Tensor, options: Options) -> None:
    """Sum each tensor over the ranks, in place."""
    if options.sums_over_ranks:
        for tensor in tensors:
            dist.all_reduce(tensor, group=options.process_group)
