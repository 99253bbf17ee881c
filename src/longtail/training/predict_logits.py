"""The logits of all images of a split, each image once over all ranks."""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.data.images import ImageDataset
from longtail.data.views import Batch
from longtail.models.stage_feature_net import StageFeatureNet
from longtail.training.build import Parts, evaluation_loader
from longtail.training.embed_images import BATCH, Progress, embed_batches, fused_copy
from longtail.training.ranks import Ranks


@torch.no_grad()
def predict_logits(
    model: nn.Module, images: ImageDataset, parts: Parts, fabric: Fabric, progress: Progress | None = None
) -> NDArray[np.float32]:
    """The logits (N, K) in the order of the images, the same on every rank; the model is left in eval mode."""
    ranks = Ranks(fabric)
    size = BATCH * ranks.size if isinstance(model, StageFeatureNet) else None
    loader = evaluation_loader(parts, images, rank=ranks.rank, world_size=ranks.size, batch_size=size)
    model.eval()
    mine: dict[int, NDArray[np.float32]] = {}
    for indices, logits in _predicted(model, loader, fabric):
        mine |= dict(zip(indices, logits, strict=True))
        if progress:
            progress(len(mine) * ranks.size, len(images))
    found = {index: row for part in ranks.gather(mine) for index, row in part.items()}
    return np.stack([found[index] for index in range(len(images))])


def _predicted(
    model: nn.Module, loader: Iterable[Batch], fabric: Fabric
) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
    """The indices and logits of each batch; a frozen network with a head takes the fast way of embedding."""

    def predict(images: Tensor) -> Tensor:
        with fabric.autocast():
            logits: Tensor = model(images)
        return logits

    if isinstance(model, StageFeatureNet):
        model = fused_copy(model, fabric.device)
        yield from embed_batches(predict, loader, fabric.device)
        return
    for batch in loader:
        yield batch.indices.tolist(), predict(fabric.to_device(batch.views[0])).float().cpu().numpy()
