"""Which features of a frozen network the head gets: those of whole images, or those of the cells of a grid.

Photographs show their subject anywhere, and a grid only adds noise. In pictures of digits, signs, clothes or parts on a
belt it always lies in the same place, and what is where tells the classes apart. A cross-validation on a sample of the
images decides. It needs some size: at 64 px the grid looks better than it is at larger ones.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from longtail.data import LongTailData
from longtail.data.preprocessing import Preprocessing
from longtail.heads import HeadChoice, choose_head, is_better
from longtail.models.pretrained_weights import PretrainedWeights
from longtail.models.stage_feature_net import StageFeatureNet
from longtail.training.embed_images import embed_images
from longtail.training.frozen_head import FOLDS, SAMPLE, embedding_cache, sample_rows

Features = Literal["stages", "grid"]
FEATURES: tuple[Features, ...] = ("stages", "grid")
# The grid of all images must fit into so many bytes.
_MOST_BYTES = 10**9


def choose_features(
    nets: Mapping[Features, StageFeatureNet],
    data: LongTailData,
    preprocessing: Preprocessing,
    weights: PretrainedWeights | None,
    head: Mapping[str, Any],
    *,
    sample: int = SAMPLE,
    seed: int,
    workers: int,
    device: torch.device | str,
    progress: Callable[[str, int, int], None],
) -> Features:
    """The grid if its cross-validation is clearly better, else the stages.

    Args:
        nets: one for each kind, with the same weights.
        data: the images.
        preprocessing: how they are seen.
        weights: that the networks have; None keeps no embeddings.
        head: name and settings; what is not set has its default.
        sample: about so many images decide, of each class the same number.
        seed: of the sample and the folds.
        workers: processes that decode.
        device: where to embed.
        progress: is told what is done, how far, of how much.
    """
    every = len(data.train) + len(data.val) + len(data.test)
    if 4 * every * nets["grid"].num_features > _MOST_BYTES:
        return "stages"
    rows = sample_rows(data, sample, seed)
    images, target = data.train.select(rows), data.train.targets[rows]
    counts = np.bincount(target, minlength=len(data.classes)).tolist()
    settings = {key: value for key, value in head.items() if key != "name"}

    def choice(kind: Features) -> HeadChoice:
        net = nets[kind]
        cache = embedding_cache(weights, preprocessing, data.in_channels, net) if weights else None
        told = partial(progress, f"trying {kind} at {preprocessing.size} px")
        found = embed_images(net, images, preprocessing, cache=cache, device=device, workers=workers, progress=told)
        standard = (found - found.mean(0)) / found.std(0, correction=0).clamp_min(1e-6)
        labels = torch.from_numpy(target)
        # Without time the default settings alone are tried.
        return choose_head(
            standard, labels, counts, name=head["name"], settings=settings, folds=FOLDS, seed=seed, seconds=0
        )

    stages, grid = choice("stages"), choice("grid")
    scored = np.flatnonzero(~np.isnan(stages.logits[:, 0]))
    labels = target[scored]
    before, after = (each.logits[scored].argmax(1) == labels for each in (stages, grid))
    return "grid" if is_better(after, before, labels, seed) else "stages"
