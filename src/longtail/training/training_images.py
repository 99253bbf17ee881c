"""The training images as a method sees them when an epoch starts."""

from collections.abc import Iterator
from dataclasses import dataclass

from lightning_fabric import Fabric
from torch import Tensor

from longtail.data.views import Batch
from longtail.training.build import Parts, evaluation_loader
from longtail.training.ranks import Ranks


@dataclass(frozen=True)
class TrainingImages:
    """The `EpochData` of a training."""

    parts: Parts
    fabric: Fabric
    ranks: Ranks

    def batches(self) -> Iterator[Batch]:
        """This rank's share of the training images."""
        images, ranks = self.parts.data.train, self.ranks
        for batch in evaluation_loader(self.parts, images, rank=ranks.rank, world_size=ranks.size):
            yield self.fabric.to_device(batch)

    def sum_over_ranks(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all ranks."""
        return self.ranks.sum(tensor)
