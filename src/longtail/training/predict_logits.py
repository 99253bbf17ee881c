"""The logits of all images of a split, each image once over all ranks."""

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.data.images import ImageDataset
from longtail.training.build import Parts, evaluation_loader
from longtail.training.ranks import Ranks


@torch.no_grad()
def predict_logits(model: nn.Module, images: ImageDataset, parts: Parts, fabric: Fabric) -> NDArray[np.float32]:
    """The logits (N, K) in the order of the images, the same on every rank; the model is left in eval mode."""
    ranks = Ranks(fabric)
    loader = evaluation_loader(parts, images, rank=ranks.rank, world_size=ranks.size)
    model.eval()
    mine: dict[int, NDArray[np.float32]] = {}
    for batch in loader:
        with fabric.autocast():
            logits: Tensor = model(fabric.to_device(batch.views[0]))
        mine |= dict(zip(batch.indices.tolist(), logits.float().cpu().numpy(), strict=True))
    found = {index: row for part in ranks.gather(mine) for index, row in part.items()}
    return np.stack([found[index] for index in range(len(images))])
