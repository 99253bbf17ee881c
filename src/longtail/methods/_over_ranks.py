"""Sums over all ranks that a loss may use: with them a rank's loss is that of the whole batch.

DDP averages the gradients of the ranks. The loss of the whole batch is the same number on each rank, and each rank has
the gradient of its own images alone; so that gradient counts once for each rank, and the average is the whole.
"""

import torch.distributed as dist
from torch import Tensor


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """The sum of a tensor over all ranks; its gradient is that of this rank's share, times the number of ranks."""
    if not _several():
        return tensor
    total = tensor.detach().clone()
    dist.all_reduce(total)
    return total + dist.get_world_size() * (tensor - tensor.detach())


def max_over_ranks(tensor: Tensor) -> Tensor:
    """The largest value of each entry over all ranks, without a gradient."""
    largest = tensor.detach().clone()
    if _several():
        dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest


def _several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
