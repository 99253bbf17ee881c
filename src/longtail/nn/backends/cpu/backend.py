"""The layer by the compiled kernel: what to allocate, what to hand over, and when.

Everything that the backward pass needs beside the input lies in one tensor, `kept`: the responsibilities w (M, N), if
they are needed, then the state and the batch's moments as `compound_bn.h` lays them out.
"""

from typing import ClassVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from longtail.nn.backends.base import Mixture, MixtureStatistics, Options, Saved, Statistics, Update
from longtail.nn.backends.cpu.library import MAX_COMPONENTS, load
from longtail.nn.backends.cpu.structure import (
    ESTIMATE,
    FINISH,
    INPUT,
    REFUSED,
    SHIFT,
    STATISTICS,
    SUMS,
    BackwardStructure,
    ForwardStructure,
)

_PLAIN = (Tensor, torch.nn.Parameter)
_FLOAT = 4  # bytes


def takes(x: Tensor, mixture: Mixture) -> bool:
    """Whether there is a kernel for these tensors, where nobody is tracing what is done to them."""
    if x.dtype != torch.float32 or not x.is_cpu or mixture.mean.shape[0] > MAX_COMPONENTS:
        return False
    for tensor in mixture:
        if tensor is not None and (tensor.dtype != torch.float32 or not tensor.is_cpu):
            return False
    if torch.compiler.is_compiling():
        return _built() and not torch.compiler.is_exporting()
    # A subclass of Tensor may have no memory to point to.
    plain = type(x) in _PLAIN and all(tensor is None or type(tensor) in _PLAIN for tensor in mixture)
    return plain and x.numel() > 0 and not torch._C._get_tracing_state() and _built()


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # torch does not annotate it
def _built() -> bool:
    return load() is not None


class CpuBackend:
    """The kernel in C; float32 on a CPU."""

    fuses_relu: ClassVar[bool] = True

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
        library = load()
        assert library is not None
        x = dense(x)
        components, channels = mixture.mean.shape
        y, kept = allocate(x, components, groups is not None, options, keep=keep)
        prior, mean, var, weight, bias = (None if tensor is None else tensor.contiguous() for tensor in mixture)
        state, moments = _offsets(kept, components, channels)
        start = kept.data_ptr()
        in_place = out is not None and all(statistic.is_contiguous() for statistic in out)
        new: Statistics | tuple[None, None, None] = (None, None, None)
        if options.training:
            new = out if out is not None and in_place else empty_statistics(mixture)
        arguments = ForwardStructure(
            **_shape(x, components),
            x=x.data_ptr(),
            y=y.data_ptr(),
            w=start if state else None,
            groups=_pointer(groups),
            prior=_pointer(prior),
            mean=_pointer(mean),
            var=_pointer(var),
            weight=_pointer(weight),
            bias=_pointer(bias),
            state=start + _FLOAT * state,
            moments=start + _FLOAT * moments,
            new_prior=_pointer(new[0]),
            new_mean=_pointer(new[1]),
            new_var=_pointer(new[2]),
            planes=planes(x),
            training=options.training,
            statistics=STATISTICS[options.statistics],
            sample_variance=options.sample_variance,
            relu=options.relu,
            eps=options.eps,
            momentum=float(momentum),
            min_mass=options.min_mass,
        )
        if options.sums_over_ranks:
            library.forward(arguments, SHIFT)
            dist.all_reduce(kept[moments : moments + channels + 1], group=options.process_group)
            library.forward(arguments, ESTIMATE)
            dist.all_reduce(kept[moments:], group=options.process_group)
            accepted = library.forward(arguments, FINISH) != REFUSED
        else:
            accepted = library.forward(arguments, SHIFT | ESTIMATE | FINISH) != REFUSED
        saved = (x, kept, weight, groups, y if options.relu else None)
        if new[0] is None:
            return y, None, saved
        if in_place:
            torch.autograd.graph.increment_version(new)
            return y, accepted, saved
        return y, MixtureStatistics(*new, accepted), saved

    @classmethod
    def backward(cls, grad: Tensor, saved: Saved, options: Options, *, needs_input: bool) -> tuple[Tensor | None, ...]:
        """See `Backend`."""
        library = load()
        assert library is not None
        x, kept = cast("tuple[Tensor, Tensor]", saved[:2])
        weight, groups, y = saved[2:]
        channels = x.shape[1]
        components = _components(x, kept, groups)
        grad = dense(grad)
        grad_x = torch.empty_like(x) if needs_input else None
        grads = x.new_empty(4, components, channels)
        size = _FLOAT * components * channels
        state, _ = _offsets(kept, components, channels)
        start, first = kept.data_ptr(), grads.data_ptr()
        arguments = BackwardStructure(
            **_shape(x, components),
            x=x.data_ptr(),
            grad=grad.data_ptr(),
            y=_pointer(y),
            grad_x=_pointer(grad_x),
            w=start,
            groups=_pointer(groups),
            weight=_pointer(weight),
            state=start + _FLOAT * state,
            sums=first + 2 * size,
            grad_weight=first,
            grad_bias=first + size,
            planes=planes(x),
            grad_planes=planes(grad),
            statistics=STATISTICS[options.statistics],
            through_weights=groups is None and not options.detach_responsibilities,
        )
        if not (options.sums_over_ranks and options.moments_first):
            library.backward(arguments, SUMS | INPUT if needs_input else SUMS)
        else:
            library.backward(arguments, SUMS)
            if needs_input:
                dist.all_reduce(grads[2:], group=options.process_group)
                library.backward(arguments, INPUT)
        return grad_x, grads[0], grads[1]


def allocate(x: Tensor, components: int, split: bool, options: Options, *, keep: bool) -> tuple[Tensor, Tensor]:
    """Room for the output and for what is kept."""
    channels = x.shape[1]
    with_weights = not split and (keep or options.moments_first)
    weights = components * (x.numel() // channels) if with_weights else 0
    return torch.empty_like(x), x.new_empty(
        weights + _state_size(components, channels) + _moments_size(components, channels)
    )


def empty_statistics(mixture: Mixture) -> Statistics:
    """Room for new statistics."""
    prior, mean, var = mixture[:3]
    return prior.new_empty(prior.shape), mean.new_empty(mean.shape), var.new_empty(var.shape)


def _state_size(components: int, channels: int) -> int:
    return channels + 8 * components * channels + 2 * components


def _moments_size(components: int, channels: int) -> int:
    return components + 2 * components * channels


def _offsets(kept: Tensor, components: int, channels: int) -> tuple[int, int]:
    """Where the state and the moments start in `kept`; before them are the responsibilities, if anything."""
    moments = kept.numel() - _moments_size(components, channels)
    return moments - _state_size(components, channels), moments


def _components(x: Tensor, kept: Tensor, groups: Tensor | None) -> int:
    """How many components `kept` was allocated for; on the split path it has no responsibilities."""
    channels = x.shape[1]
    sizes = [_state_size(m, channels) + _moments_size(m, channels) for m in (0, 1)]
    points = x.numel() // channels if groups is None else 0
    return (kept.numel() - sizes[0]) // (sizes[1] - sizes[0] + points)


def _shape(x: Tensor, components: int) -> dict[str, int]:
    samples, channels = x.shape[:2]
    return {
        "samples": samples,
        "positions": x.numel() // (samples * channels),
        "channels": channels,
        "components": components,
        "threads": torch.get_num_threads(),
    }


def dense(x: Tensor) -> Tensor:
    """The tensor as the kernel can read it: rows of channels, or planes of positions."""
    return x.contiguous() if planes(x) else x


def planes(x: Tensor) -> bool:
    """Whether x is not rows of channels, as are (N, C), channels_last and maps of one position."""
    if x.dim() == 4:
        return not x.is_contiguous(memory_format=torch.channels_last)
    return not x.movedim(1, -1).is_contiguous()


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
