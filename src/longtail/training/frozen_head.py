"""The first stage of a run from pretrained weights: embed the images once, and fit a head on the features.

    image size → embeddings (cached) → cross-validation of the head → the head of all training images

The network that comes out is whole: images to logits, like any other. Where the data has no validation split, the
predictions of the cross-validation stand in for one, so that all images train the head.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail._errors import UsageError
from longtail.data import LongTailData
from longtail.data.embedding_cache import EmbeddingCache
from longtail.data.preprocessing import Preprocessing
from longtail.heads import HEADS, HeadChoice, choose_head, is_better
from longtail.models.pretrained_weights import PretrainedWeights
from longtail.models.stage_feature_net import StageFeatureNet
from longtail.training.duration import format_duration
from longtail.training.embed_images import embed_images

Say = Callable[[str], None]
Progress = Callable[[str, int, int], None]

# Sizes to choose from. Small images gain from being enlarged, up to this one.
SIZES = (32, 64, 96, 128, 160, 192, 224)
_LARGEST_FOR_SMALL = 128
SMALL = 96
# Shares of the time: for embedding at the chosen size, and for the cross-validation.
_EMBED_SHARE, _CHOOSE_SHARE = 0.6, 0.2
# Cross-validation looks at no more images than this, the same number of each large class.
_MOST_TO_CHOOSE = 6000
_FOLDS = 4


@dataclass(frozen=True)
class FrozenHead:
    """A fitted head.

    Args:
        settings: of the head, all resolved, with its name.
        choice: what the cross-validation found.
        features: of the training images, not standardised.
    """

    settings: dict[str, Any]
    choice: HeadChoice
    features: Tensor


def usual_size(side: int) -> int:
    """The size for images whose shorter side is `side`, if time does not matter."""
    if side <= SMALL:
        return _LARGEST_FOR_SMALL
    return max(size for size in SIZES if size <= max(side, _LARGEST_FOR_SMALL))


def affordable_size(seconds_an_image: Callable[[int], float], data: LongTailData, side: int, *, seconds: float) -> int:
    """The largest size at which all images are embedded in a share of the time.

    Args:
        seconds_an_image: of a size, measured.
        data: whose images are embedded: each once.
        side: the shorter side of a typical image.
        seconds: of the whole run.
    """
    most = usual_size(side)
    images = len(data.train) + len(data.val) + len(data.test)
    sizes = [size for size in SIZES if size <= most]
    fitting = [size for size in sizes if images * seconds_an_image(size) <= _EMBED_SHARE * seconds]
    return max(fitting, default=sizes[0])


def time_embedding(net: StageFeatureNet, in_channels: int, device: torch.device | str) -> Callable[[int], float]:
    """Seconds that an image takes at each size, from one measurement: the cost grows with the area."""
    size = 64
    images = torch.zeros(16, in_channels, size, size, device=device).to(memory_format=torch.channels_last)
    net.eval().to(device)
    took = []
    with torch.inference_mode():
        for _ in range(3):
            start = time.perf_counter()
            net.stage_features(images)
            took.append((time.perf_counter() - start) / len(images))
    fastest = min(took[1:])
    return lambda other: fastest * (other / size) ** 2 + 0.001  # and a millisecond to decode it


def choose_size(
    net: StageFeatureNet,
    data: LongTailData,
    seen: Callable[[int], Preprocessing],
    weights: PretrainedWeights,
    head: dict[str, Any],
    sizes: Sequence[int],
    *,
    seed: int,
    workers: int,
    device: torch.device | str,
    progress: Progress,
) -> int:
    """The size at which cross-validation finds the head best: the first of `sizes` unless another is clearly better.

    What it embeds stays in the cache for the chosen size.
    """
    target = torch.from_numpy(data.train.targets)
    counts = list(data.class_counts)
    name, settings = head["name"], {key: value for key, value in head.items() if key != "name"}
    kind = HEADS[name]
    if kind.knob is not None:
        settings.setdefault(kind.knob, kind.values[0])
    best, right = sizes[0], None
    for size in sizes:
        preprocessing = seen(size)
        cache = embedding_cache(weights, preprocessing, data.in_channels, net)
        what = f"{size} px"
        features = embed_images(
            net,
            data.train,
            preprocessing,
            cache=cache,
            device=device,
            workers=workers,
            progress=lambda done, total, what=what: progress(what, done, total),  # type: ignore[misc] # bound now
        )
        standard = (features - features.mean(0)) / features.std(0, correction=0).clamp_min(1e-6)
        most = _most_images(counts)
        found = choose_head(
            standard, target, counts, name=name, settings=settings, folds=_FOLDS, seed=seed, most_images=most
        )
        scored = np.flatnonzero(~np.isnan(found.logits[:, 0]))
        correct = found.logits[scored].argmax(1) == data.train.targets[scored]
        if right is None or is_better(correct, right, data.train.targets[scored]):
            best, right = size, correct
    return best


def fit_frozen_head(
    net: StageFeatureNet,
    data: LongTailData,
    preprocessing: Preprocessing,
    weights: PretrainedWeights | None,
    head: dict[str, Any],
    *,
    seed: int,
    seconds: float | None,
    workers: int,
    device: torch.device | str,
    say: Say,
    progress: Progress,
) -> FrozenHead:
    """Fit the head of `net` in place.

    Args:
        net: whose backbone has its weights.
        data: the images.
        preprocessing: how the network sees them.
        weights: that the backbone has, for the key of the cache; None keeps nothing.
        head: `name` and settings; a knob that is not set is chosen by cross-validation.
        seed: of the folds.
        seconds: of the whole run, of which the cross-validation takes a share.
        workers: processes that decode.
        device: where to embed.
        say: tells the user.
        progress: is told what is done, how far, of how much.
    """
    name, settings = head["name"], {key: value for key, value in head.items() if key != "name"}
    cache = embedding_cache(weights, preprocessing, data.in_channels, net) if weights else None
    features = embed_images(
        net,
        data.train,
        preprocessing,
        cache=cache,
        device=device,
        workers=workers,
        progress=lambda done, total: progress("embedding", done, total),
    )
    if cache is not None:
        cache.trim()
        if cache.problem:
            say(cache.problem)
    target = torch.from_numpy(data.train.targets)
    net.cpu().standardise(features)
    standard = (features - net.centre) / net.spread
    counts = list(data.class_counts)
    try:
        choice = choose_head(
            standard,
            target,
            counts,
            name=name,
            settings=settings,
            folds=_FOLDS,
            seed=seed,
            seconds=None if seconds is None else _CHOOSE_SHARE * seconds,
            most_images=_most_images(counts),
        )
        net.classifier = HEADS[name](counts, **choice.settings).fit(standard, target)
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(str(error.args[0] if error.args else error), "", "`longtail list heads` shows all") from error
    say(
        f"head: {name} on {features.shape[1]:,} frozen features, balanced accuracy {choice.balanced:.1%} "
        f"in {_FOLDS}-fold cross-validation ({format_duration(choice.seconds)})"
    )
    return FrozenHead({"name": name, **choice.settings}, choice, features)


def embedding_cache(
    weights: PretrainedWeights, preprocessing: Preprocessing, in_channels: int, net: StageFeatureNet
) -> EmbeddingCache:
    """The cache of what this network makes of images seen this way."""
    return EmbeddingCache(
        {
            "format": 1,
            "weights": weights.digest,
            "model": weights.model,
            "features": net.num_features,
            "in_channels": in_channels,
            "size": preprocessing.size,
            "mean": preprocessing.mean,
            "std": preprocessing.std,
            "view": repr(preprocessing.evaluation()),
            "torch": torch.__version__,
        }
    )


def _most_images(counts: list[int]) -> int | None:
    """The images of a class to choose by, so that all together are at most `_MOST_TO_CHOOSE`."""
    if sum(counts) <= _MOST_TO_CHOOSE:
        return None
    most = max(counts)
    while most > 10 and sum(min(count, most) for count in counts) > _MOST_TO_CHOOSE:
        most = int(most * 0.9)
    return most


def scored_images(choice: HeadChoice, data: LongTailData) -> tuple[Any, NDArray[np.float32]]:
    """The training images that the cross-validation scored, and their logits."""
    rows = np.flatnonzero(~np.isnan(choice.logits[:, 0]))
    return data.train.select(rows), choice.logits[rows]
