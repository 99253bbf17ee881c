"""`longtail.nn.functional.mixture_norm` by the compiled kernel: what to allocate, what to hand over, and when.

Everything that the backward pass needs beside the input lies in one tensor, `kept`: the responsibilities w (M, N), if
they are needed, then the state and the batch's moments as `compound_bn.h` lays them out.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from longtail.nn.functional.options import Mixture, Options
from longtail.nn.kernels.library import MAX_COMPONENTS, load
from longtail.nn.kernels.structures import ESTIMATE, FINISH, INPUT, REFUSED, SHIFT, SUMS, Backward, Forward

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


def forward(
    x: Tensor,
    groups: Tensor | None,
    mixture: Mixture,
    options: Options,
    *,
    keep_weights: bool,
    momentum: float = 0.0,
    new: tuple[Tensor, Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, bool]:
    """Estimate and normalise; x must be `dense`.

    Args:
        x: input, (N, C, ...).
        groups: the group of each sample, int64, for the split path.
        mixture: statistics and affine parameters.
        options: what is fixed for the call.
        keep_weights: whether a backward pass follows.
        momentum: the share of the batch in `new`.
        new: where the new prior, mean and variance go; may be the old ones.

    Returns:
        The output, what to keep for `backward` and `moments_of`, and whether the batch was accepted.
    """
    library = load()
    assert library is not None
    components, channels = mixture.mean.shape
    y, kept = allocate(x, components, groups is not None, options, keep_weights=keep_weights)
    prior, mean, var, weight, bias = (None if tensor is None else tensor.contiguous() for tensor in mixture)
    state, moments = _offsets(kept, components, channels)
    start = kept.data_ptr()
    scratch = x.new_empty(components * (1 + 2 * channels)) if new is None and options.training else None
    target = [0, 0, 0] if new is None else [tensor.data_ptr() for tensor in new]
    if scratch is not None:
        first = scratch.data_ptr()
        target = [first, first + _FLOAT * components, first + _FLOAT * components * (1 + channels)]
    arguments = Forward(
        *_shape(x, components),
        x.data_ptr(),
        y.data_ptr(),
        start if state else None,
        _pointer(groups),
        _pointer(prior),
        _pointer(mean),
        _pointer(var),
        _pointer(weight),
        _pointer(bias),
        start + _FLOAT * state,
        start + _FLOAT * moments,
        *target,
        planes(x),
        options.training,
        options.batch_statistics,
        options.relu,
        options.eps,
        options.temperature,
        momentum,
        options.min_mass,
    )
    if not (options.synchronize and options.training):
        return y, kept, library.forward(arguments, SHIFT | ESTIMATE | FINISH) != REFUSED
    library.forward(arguments, SHIFT)
    if options.batch_statistics:
        dist.all_reduce(kept[moments : moments + channels + 1], group=options.process_group)
    library.forward(arguments, ESTIMATE)
    dist.all_reduce(kept[moments:], group=options.process_group)
    return y, kept, library.forward(arguments, FINISH) != REFUSED


def backward(
    grad: Tensor,
    x: Tensor,
    kept: Tensor,
    weight: Tensor | None,
    groups: Tensor | None,
    y: Tensor | None,
    *,
    components: int,
    options: Options,
    needs_input: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x (empty unless it is needed), γ and β."""
    library = load()
    assert library is not None
    channels = x.shape[1]
    grad = dense(grad)
    grad_x = torch.empty_like(x) if needs_input else x.new_empty(0)
    grads = x.new_empty(4, components, channels)
    size = _FLOAT * components * channels
    weight = None if weight is None else weight.contiguous()
    state, _ = _offsets(kept, components, channels)
    start, first = kept.data_ptr(), grads.data_ptr()
    arguments = Backward(
        *_shape(x, components),
        x.data_ptr(),
        grad.data_ptr(),
        _pointer(y),
        grad_x.data_ptr() or None,
        start,
        _pointer(groups),
        _pointer(weight),
        start + _FLOAT * state,
        first + 2 * size,
        first,
        first + size,
        planes(x),
        planes(grad),
        options.batch_statistics,
        groups is None and not options.detach_responsibilities,
        options.eps,
        options.min_mass,
    )
    if not (options.synchronize and options.batch_statistics):
        library.backward(arguments, SUMS | INPUT if needs_input else SUMS)
    else:
        library.backward(arguments, SUMS)
        if needs_input:
            dist.all_reduce(grads[2:], group=options.process_group)
            library.backward(arguments, INPUT)
    return grad_x, grads[0], grads[1]


def allocate(x: Tensor, components: int, split: bool, options: Options, *, keep_weights: bool) -> tuple[Tensor, Tensor]:
    """Room for the output and for what is kept."""
    channels = x.shape[1]
    with_weights = not split and (keep_weights or options.batch_statistics)
    weights = components * (x.numel() // channels) if with_weights else 0
    return torch.empty_like(x), x.new_empty(
        weights + _state_size(components, channels) + _moments_size(components, channels)
    )


def moments_of(kept: Tensor, components: int, channels: int) -> tuple[Tensor, Tensor, Tensor]:
    """The batch's mass (M,), mean and variance (M, C)."""
    size, rows = components * channels, (components, channels)
    mass, mean, var = kept[-_moments_size(components, channels) :].split([components, size, size])
    return mass, mean.view(rows), var.view(rows)


def _state_size(components: int, channels: int) -> int:
    return channels + 6 * components * channels + components


def _moments_size(components: int, channels: int) -> int:
    return components + 2 * components * channels


def _offsets(kept: Tensor, components: int, channels: int) -> tuple[int, int]:
    """Where the state and the moments start in `kept`; before them are the responsibilities, if anything."""
    moments = kept.numel() - _moments_size(components, channels)
    return moments - _state_size(components, channels), moments


def _shape(x: Tensor, components: int) -> tuple[int, int, int, int, int]:
    samples, channels = x.shape[:2]
    return samples, x.numel() // (samples * channels), channels, components, torch.get_num_threads()


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
