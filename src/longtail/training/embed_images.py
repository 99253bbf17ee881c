"""Embed images once: from files or arrays to features of a frozen network, through the cache on disk."""

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.data.embedding_cache import EmbeddingCache, image_digests
from longtail.data.images import FileImages, ImageDataset
from longtail.data.loader import eval_loader
from longtail.data.preprocessing import Preprocessing
from longtail.models.stage_feature_net import StageFeatureNet

Progress = Callable[[int, int], None]

_BATCH = 32
# What a killed process loses at most: so many seconds of work.
_SECONDS_BETWEEN_WRITES = 10.0


@torch.inference_mode()
def embed_images(
    net: StageFeatureNet,
    images: ImageDataset,
    preprocessing: Preprocessing,
    *,
    cache: EmbeddingCache | None = None,
    device: torch.device | str = "cpu",
    workers: int = 0,
    progress: Progress | None = None,
) -> Tensor:
    """The features of every image in the view of the evaluation, (N, D) on the CPU.

    Args:
        net: whose `stage_features` are computed; put in eval mode.
        images: of any split.
        preprocessing: how they are seen.
        cache: rows found there are not computed again, and new ones are added.
        device: where to compute.
        workers: processes that decode.
        progress: is told how many are done, of how many.
    """
    net.eval().to(device)
    known = cache.read() if cache else {}
    digests = image_digests(images) if cache else []
    rows = np.empty((len(images), net.num_features), np.float32)
    missing = [i for i in range(len(images)) if not cache or digests[i] not in known]
    for index in set(range(len(images))).difference(missing):
        rows[index] = known[digests[index]]
    del known
    waiting: list[int] = []
    written = time.monotonic()
    done = len(images) - len(missing)
    part = images.select(missing)
    for batch in eval_loader(part, preprocessing, batch_size=_BATCH, workers=workers) if missing else ():
        places = [missing[i] for i in batch.indices.tolist()]
        rows[places] = net.stage_features(batch.views[0].to(device)).float().cpu().numpy()
        waiting += places
        done += len(places)
        if progress:
            progress(done, len(images))
        if cache and time.monotonic() - written > _SECONDS_BETWEEN_WRITES:
            cache = cache if _write(cache, waiting, digests, rows, part, missing) else None
            waiting, written = [], time.monotonic()
    if cache and waiting:
        _write(cache, waiting, digests, rows, part, missing)
    return torch.from_numpy(rows)


def _write(
    cache: EmbeddingCache,
    waiting: Sequence[int],
    digests: Sequence[bytes],
    rows: NDArray[np.float32],
    part: ImageDataset,
    missing: Sequence[int],
) -> bool:
    """Add rows to the cache, but for images that could not be read: they show another of their class."""
    broken = {missing[i] for i in part.unreadable} if isinstance(part, FileImages) else set()
    good = [i for i in waiting if i not in broken]
    return not good or cache.write([digests[i] for i in good], rows[good])
