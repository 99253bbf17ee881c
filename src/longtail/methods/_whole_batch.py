"""The whole batch of a step, for losses that compare images: what each rank has of it, on every rank."""

import torch
import torch.distributed as dist
from torch import Tensor


def whole_batch(rows: Tensor) -> Tensor:
    """The rows of all ranks in the order that one process has them, images dealt out in turn.

    A loss of all rows, computed on every rank, then has the gradient of one process with the whole batch: each rank has
    gradients through its own rows alone, times the number of ranks, since DDP averages them.

    Args:
        rows: (B, ...), as many on each rank.
    """
    rank, ranks = _place()
    if ranks == 1:
        return rows
    parts = [torch.empty_like(rows.detach(), memory_format=torch.contiguous_format) for _ in range(ranks)]
    dist.all_gather(parts, rows.detach().contiguous())
    if rows.requires_grad:
        parts[rank] = rows.detach() + ranks * (rows - rows.detach())
    return torch.stack(parts, dim=1).flatten(0, 1)


def own_rows(rows: Tensor) -> Tensor:
    """Of the rows of the whole batch, those of this rank."""
    rank, ranks = _place()
    return rows[rank::ranks]


def _place() -> tuple[int, int]:
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(), dist.get_world_size()
