"""The backend for CUDA: the eager one with its passes over the points in Triton.

The matrix products of `longtail.nn.backends.eager`, each read of the input used for all components at once; what is of
size (M, C) stays in torch. The number of components m is a constant to the compiler. Symbols are those of `eager`;
points are rows (N, C), weights component-major (M, N).

Checked in Triton's interpreter, and not yet timed on a GPU.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from longtail.nn.backends.eager import Affine, EagerBackend, Moments, Passes, as_points
from longtail.nn.responsibilities import LogDensity

_ROWS = 32
_CHANNELS = 64
_CHUNK = 1024  # rows whose sums one program adds up


@triton.jit
def _tile(pointer, rows, channels, points, width):
    inside = (rows[:, None] < points) & (channels[None, :] < width)
    return tl.load(pointer + rows[:, None].to(tl.int64) * width + channels[None, :], mask=inside, other=0.0)


@triton.jit
def _row(pointer, j, channels, width):
    return tl.load(pointer + j * width + channels, mask=channels < width, other=0.0)[None, :]


@triton.jit
def _weight(w, j, rows, points):
    return tl.load(w + j * points + rows, mask=rows < points, other=0.0)[:, None]


@triton.jit
def _estimate(
    x,
    shift,
    constant,
    linear,
    quadratic,
    w,
    points,
    width,
    m: tl.constexpr,
    padded: tl.constexpr,
    block_rows: tl.constexpr,
    block_channels: tl.constexpr,
):
    rows = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    components = tl.arange(0, padded)
    logits = tl.zeros((block_rows, padded), tl.float32)
    for start in range(0, width, block_channels):
        channels = start + tl.arange(0, block_channels)
        c = _tile(x, rows, channels, points, width) - _row(shift, 0, channels, width)
        for j in tl.static_range(m):
            term = tl.sum(c * (_row(linear, j, channels, width) + _row(quadratic, j, channels, width) * c), 1)
            logits += tl.where(components[None, :] == j, term[:, None], 0.0)
    logits += tl.load(constant + components, mask=components < m, other=float("-inf"))[None, :]
    logits = tl.exp(logits - tl.max(logits, 1)[:, None])
    result = logits / tl.sum(logits, 1)[:, None]
    inside = (rows[:, None] < points) & (components[None, :] < m)
    tl.store(w + components[None, :] * points + rows[:, None], result, mask=inside)


@triton.jit
def _sums(
    x,
    g,
    shift,
    w,
    out,
    points,
    width,
    has_gradient: tl.constexpr,
    m: tl.constexpr,
    padded: tl.constexpr,
    block_rows: tl.constexpr,
    block_channels: tl.constexpr,
    chunk_rows: tl.constexpr,
):
    chunk, channels = tl.program_id(0), tl.program_id(1) * block_channels + tl.arange(0, block_channels)
    components = tl.arange(0, padded)[:, None]
    first, second = tl.zeros((padded, block_channels), tl.float32), tl.zeros((padded, block_channels), tl.float32)
    for start in range(0, chunk_rows, block_rows):
        rows = chunk * chunk_rows + start + tl.arange(0, block_rows)
        c = _tile(x, rows, channels, points, width) - _row(shift, 0, channels, width)
        value = _tile(g, rows, channels, points, width) if has_gradient else c
        for j in tl.static_range(m):
            weight = _weight(w, j, rows, points)
            first += tl.where(components == j, tl.sum(weight * value, 0)[None, :], 0.0)
            second += tl.where(components == j, tl.sum(weight * value * c, 0)[None, :], 0.0)
    inside = (components < m) & (channels[None, :] < width)
    target = out + (chunk * 2 * m + components) * width + channels[None, :]
    tl.store(target, first, mask=inside)
    tl.store(target + m * width, second, mask=inside)


@triton.jit
def _transform(
    x,
    shift,
    w,
    scale,
    offset,
    y,
    points,
    width,
    m: tl.constexpr,
    block_rows: tl.constexpr,
    block_channels: tl.constexpr,
):
    rows, channels = (
        tl.program_id(0) * block_rows + tl.arange(0, block_rows),
        tl.program_id(1) * block_channels + tl.arange(0, block_channels),
    )
    c = _tile(x, rows, channels, points, width) - _row(shift, 0, channels, width)
    result = tl.zeros((block_rows, block_channels), tl.float32)
    for j in tl.static_range(m):
        result += _weight(w, j, rows, points) * (_row(scale, j, channels, width) * c + _row(offset, j, channels, width))
    inside = (rows[:, None] < points) & (channels[None, :] < width)
    tl.store(y + rows[:, None].to(tl.int64) * width + channels[None, :], result, mask=inside)


@triton.jit
def _log_weight_gradient(
    x,
    g,
    shift,
    w,
    scale,
    offset,
    g0,
    g1,
    g2,
    h,
    points,
    width,
    m: tl.constexpr,
    padded: tl.constexpr,
    block_rows: tl.constexpr,
    block_channels: tl.constexpr,
):
    rows = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    components = tl.arange(0, padded)
    inside = (rows[:, None] < points) & (components[None, :] < m)
    gradient = tl.zeros((block_rows, padded), tl.float32)
    for start in range(0, width, block_channels):
        channels = start + tl.arange(0, block_channels)
        c = _tile(x, rows, channels, points, width) - _row(shift, 0, channels, width)
        value = _tile(g, rows, channels, points, width)
        for j in tl.static_range(m):
            term = value * (_row(scale, j, channels, width) * c + _row(offset, j, channels, width))
            term += c * (_row(g1, j, channels, width) + _row(g2, j, channels, width) * c)
            gradient += tl.where(components[None, :] == j, tl.sum(term, 1)[:, None], 0.0)
    gradient += tl.load(g0 + components, mask=components < m, other=0.0)[None, :]
    weight = tl.load(w + components[None, :] * points + rows[:, None], mask=inside, other=0.0)
    result = weight * (gradient - tl.sum(weight * gradient, 1)[:, None])
    tl.store(h + components[None, :] * points + rows[:, None], result, mask=inside)


@triton.jit
def _input_gradient(
    x,
    g,
    shift,
    w,
    h,
    scale,
    g1,
    g2,
    linear,
    quadratic,
    out,
    points,
    width,
    through: tl.constexpr,
    m: tl.constexpr,
    block_rows: tl.constexpr,
    block_channels: tl.constexpr,
):
    rows, channels = (
        tl.program_id(0) * block_rows + tl.arange(0, block_rows),
        tl.program_id(1) * block_channels + tl.arange(0, block_channels),
    )
    c = _tile(x, rows, channels, points, width) - _row(shift, 0, channels, width)
    value = _tile(g, rows, channels, points, width)
    result = tl.zeros((block_rows, block_channels), tl.float32)
    for j in tl.static_range(m):
        term = value * _row(scale, j, channels, width) + 2 * c * _row(g2, j, channels, width)
        result += _weight(w, j, rows, points) * (term + _row(g1, j, channels, width))
        if through:
            slope = 2 * c * _row(quadratic, j, channels, width) + _row(linear, j, channels, width)
            result += _weight(h, j, rows, points) * slope
    inside = (rows[:, None] < points) & (channels[None, :] < width)
    tl.store(out + rows[:, None].to(tl.int64) * width + channels[None, :], result, mask=inside)


class TritonPasses(Passes):
    """The passes over the points of (N, C, ...), float32, in Triton."""

    def __init__(self, x: Tensor, shift: Tensor) -> None:
        super().__init__(x, shift)
        self.points = self.points.contiguous()
        self.size = tuple(self.points.shape)
        self.row_blocks = (triton.cdiv(self.size[0], _ROWS),)
        self.tiles = (*self.row_blocks, triton.cdiv(self.size[1], _CHANNELS))

    def estimate(self, density: LogDensity) -> Tensor:
        """The responsibilities, (M, N)."""
        constant, linear, quadratic = density
        components = len(linear)
        w = self.points.new_empty(components, self.size[0])
        _estimate[self.row_blocks](
            self.points,
            self.shift,
            constant.contiguous(),
            linear,
            quadratic,
            w,
            *self.size,
            components,
            triton.next_power_of_2(components),
            _ROWS,
            _CHANNELS,
        )
        return w

    def sums(self, w: Tensor, grad: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The sums of wx and wx², or of wg and wgx, (M, C) each."""
        chunks = triton.cdiv(self.size[0], _CHUNK)
        out = self.points.new_empty(chunks, 2, len(w), self.size[1])
        _sums[(chunks, self.tiles[1])](
            self.points,
            self.points if grad is None else as_points(grad).contiguous(),
            self.shift,
            w,
            out,
            *self.size,
            grad is not None,
            len(w),
            triton.next_power_of_2(len(w)),
            _ROWS,
            _CHANNELS,
            _CHUNK,
        )
        first, second = out.sum(0)
        return first, second

    def transform(self, w: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
        """The output, of the shape and layout of x."""
        y = torch.empty_like(self.points)
        _transform[self.tiles](self.points, self.shift, w, scale, offset, y, *self.size, len(w), _ROWS, _CHANNELS)
        return self._like_x(y)

    def input_gradient(
        self, grad: Tensor, w: Tensor, affine: Affine, from_moments: Moments, through: LogDensity | None
    ) -> Tensor:
        """The gradient of x; `affine` is A and B, `from_moments` G0, G1 and G2, `through` the density if w has one."""
        grads, (scale, _), (_, g1, g2) = as_points(grad).contiguous(), affine, from_moments
        h, linear, quadratic = w, g1, g2  # not read unless the gradient goes through w
        if through is not None:
            _, linear, quadratic = through
            h = torch.empty_like(w)
            _log_weight_gradient[self.row_blocks](
                self.points,
                grads,
                self.shift,
                w,
                *affine,
                *from_moments,
                h,
                *self.size,
                len(w),
                triton.next_power_of_2(len(w)),
                _ROWS,
                _CHANNELS,
            )
        out = torch.empty_like(self.points)
        _input_gradient[self.tiles](
            self.points,
            grads,
            self.shift,
            w,
            h,
            *(scale, g1, g2, linear, quadratic),
            out,
            *self.size,
            through is not None,
            len(w),
            _ROWS,
            _CHANNELS,
        )
        return self._like_x(out)

    def _like_x(self, points: Tensor) -> Tensor:
        last = points.view(self.x.movedim(1, -1).shape).movedim(-1, 1)
        return last if self.x.movedim(1, -1).is_contiguous() else torch.empty_like(self.x).copy_(last)


class CudaBackend(EagerBackend):
    """Triton's passes; float32 on a CUDA device."""

    passes = TritonPasses
