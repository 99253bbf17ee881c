"""Embed images once: from files or arrays to features of a frozen network, through the cache on disk."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail._in_parallel import in_parallel
from longtail.data.embedding_cache import EmbeddingCache, image_digests
from longtail.data.images import FileImages, ImageDataset
from longtail.data.loader import eval_loader
from longtail.data.preprocessing import Preprocessing
from longtail.data.views import Batch
from longtail.models.fuse_conv_norm import fuse_conv_norm
from longtail.models.stage_feature_net import StageFeatureNet

Progress = Callable[[int, int], None]

# Small, so that the maps of a batch stay in the caches of a CPU: 8 takes half of the time of 32 at 224 px.
BATCH = 8
# What a killed process loses at most: so many seconds of work.
_SECONDS_BETWEEN_WRITES = 10.0


def embed_images(
    net: StageFeatureNet,
    images: ImageDataset,
    preprocessing: Preprocessing,
    *,
    cache: EmbeddingCache | None = None,
    device: torch.device | str = "cpu",
    workers: int = 0,
    mirrored: bool = False,
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
        mirrored: whether images are mirrored; the cache must be one of mirrored images.
        progress: is told how many are done, of how many.
    """
    infer = fused_copy(net, device)
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
    loader = eval_loader(part, preprocessing, batch_size=BATCH, workers=workers) if missing else ()
    for indices, features in embed_batches(
        lambda seen: infer.stage_features(seen.flip(-1) if mirrored else seen), loader, device
    ):
        places = [missing[i] for i in indices]
        rows[places] = features
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


def embed_batches(
    function: Callable[[Tensor], Tensor], batches: Iterable[Batch], device: torch.device | str
) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
    """The indices of each batch, and what the function makes of its first view; on a CPU several batches at a time."""

    def embed(batch: Batch) -> tuple[list[int], NDArray[np.float32]]:
        with torch.inference_mode():
            return batch.indices.tolist(), function(batch.views[0].to(device)).float().cpu().numpy()

    yield from in_parallel(embed, batches) if torch.device(device).type == "cpu" else map(embed, batches)


def fused_copy(net: StageFeatureNet, device: torch.device | str) -> StageFeatureNet:
    """A copy of `net` on `device` that gives the same features faster, or `net` itself."""
    net.eval().to(device)
    example = torch.zeros(2, net.in_channels, 64, 64, device=device)
    fused = fuse_conv_norm(net, example)
    assert isinstance(fused, StageFeatureNet)
    return fused.to(memory_format=torch.channels_last) if fused is not net else net


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
