"""The context in which batch norms in training mode normalise as always, but leave their running statistics alone.

For a pass through the network that should not count: a teacher's view, a probe. It is not `eval()`: what
normalises is still what training mode says, the batch's moments or whatever the reading has in their place.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from longtail.nn.compound_batch_norm import CompoundBatchNorm


@contextmanager
def frozen_statistics(model: nn.Module) -> Iterator[None]:
    """Within this context, no batch norm of the model, compound or plain, updates its buffers.

    The state lives in the layers of this model, so two models do not disturb each other, and leaving the context, by an
    exception too, restores what was there before: contexts nest, with `split_path` too, in any order. Activation
    checkpointing recomputes the forward pass during the backward pass; keep both within the context then.

    Args:
        model: any model; one without batch norms has nothing to freeze.

    Example:
        >>> import torch
        >>> from longtail.nn import CompoundBatchNorm2d
        >>> norm = CompoundBatchNorm2d(8)
        >>> with frozen_statistics(norm):
        ...     y = norm(torch.randn(4, 8, 6, 6))
        >>> norm.num_batches_tracked
        tensor(0)
    """
    # torch's own switch: a batch norm in training mode that does not track ignores its buffers and keeps them.
    layers = [module for module in model.modules() if isinstance(module, CompoundBatchNorm | _BatchNorm)]
    before = [layer.track_running_stats for layer in layers]
    for layer in layers:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer, previous in zip(layers, before, strict=True):
            layer.track_running_stats = previous
