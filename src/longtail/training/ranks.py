"""What the ranks of a run have to agree on: flags, sums, gathered results. With one process all of it is trivial."""

from typing import TypeVar

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from torch import Tensor, nn

T = TypeVar("T")


class Ranks:
    """The processes of a run.

    Args:
        fabric: launched.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.rank, self.size = fabric.global_rank, fabric.world_size

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and talks to the user."""
        return self.fabric.is_global_zero

    def any(self, here: bool) -> bool:
        """Whether it is true on any rank."""
        return bool(self.agree(int(here)))

    def agree(self, number: int) -> int:
        """A number other than 0 that some rank has, the same on all ranks; 0 if none has one."""
        if self.size == 1:
            return number
        flag = torch.tensor([number, -number], device=self.fabric.device)
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        most, least = int(flag[0]), -int(flag[1])
        return most or least

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all ranks."""
        if self.size > 1:
            tensor = tensor.to(self.fabric.device, copy=True)
            dist.all_reduce(tensor)
        return tensor

    @torch.no_grad()
    def share_buffers(self, module: nn.Module) -> None:
        """Give every rank the buffers that the first has, and a checkpoint keeps.

        Plain batch norms count the images of their own rank alone, so that the ranks would evaluate different networks.
        """
        if self.size > 1:
            for buffer in module.buffers():
                dist.broadcast(buffer, src=0)

    def gather(self, value: T) -> list[T]:
        """The value of each rank, on every rank."""
        if self.size == 1:
            return [value]
        everybody: list[T | None] = [None] * self.size
        dist.all_gather_object(everybody, value)
        return [found for found in everybody if found is not None]
