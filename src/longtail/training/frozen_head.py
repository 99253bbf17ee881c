"""The first stage of a run from pretrained weights: embed the images once, and fit a head on the features.

    image size → embeddings (cached) → cross-validation of the head → the head of all training images

The network that comes out is whole: images to logits, like any other. Where the data has no validation split, the
predictions of the cross-validation stand in for one, so that all images train the head. Where the user has one that is
large enough, the head is chosen on it instead.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail._errors import UsageError, counted
from longtail._in_parallel import in_parallel
from longtail.data import LongTailData
from longtail.data.embedding_cache import EmbeddingCache
from longtail.data.images import ImageDataset
from longtail.data.loader import eval_loader
from longtail.data.preprocessing import Preprocessing
from longtail.data.views import Batch
from longtail.heads import HEADS, HeadChoice, choose_head, is_better
from longtail.models.pretrained_weights import PretrainedWeights
from longtail.models.stage_feature_net import StageFeatureNet
from longtail.training.duration import format_duration
from longtail.training.embed_images import BATCH, embed_batches, embed_images, fused_copy
from longtail.training.keep_better import believable_temperature

Say = Callable[[str], None]
Progress = Callable[[str, int, int], None]

# Sizes to choose from. Photographs gain from being enlarged to what the weights were trained on, the last of these.
SIZES = (32, 64, 96, 128, 160, 192, 224)
# Up to this side, a smaller size may be better: it is tried.
SMALL = 96
# Images are enlarged at most so many times: a digit of 8 px has nothing to show at 224.
_ENLARGED = 7
# Shares of the time: for embedding at the chosen size, and for the cross-validation.
EMBED_SHARE, _CHOOSE_SHARE = 0.7, 0.2
# Cross-validation looks at no more images than this, the same number of each large class.
_MOST_TO_CHOOSE = 6000
# So many images are enough to choose the features, and the size of small images.
SAMPLE = 1000
FOLDS = 4
# Fewer validation images than this decide nothing.
ENOUGH_TO_JUDGE = 100
# The sizes at which embedding is timed, and how many images are read for it.
_TIMED, _READ = (64, 160), 12


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


def affordable_size(seconds_an_image: Callable[[int], float], images: int, *, side: int, seconds: float) -> int:
    """The largest size at which all images are embedded in a share of the time; the smallest if none is.

    Args:
        seconds_an_image: of a size, measured.
        images: to be embedded, each once.
        side: of a typical image.
        seconds: of the whole run.
    """
    useful = [size for size in SIZES if size <= _ENLARGED * side]
    fitting = [size for size in useful if images * seconds_an_image(size) <= EMBED_SHARE * seconds]
    return max(fitting, default=SIZES[0])


def time_embedding(
    net: StageFeatureNet, images: ImageDataset, preprocessing: Preprocessing, device: torch.device | str
) -> Callable[[int], float]:
    """Seconds that an image takes at each size, read and embedded: measured at two sizes, and linear in the area.

    Args:
        net: to be timed; its weights do not matter.
        images: of which some are read.
        preprocessing: how they are seen; the time to read one hardly depends on the size.
        device: where to embed.
    """
    infer = fused_copy(net, device)

    def seconds(size: int) -> float:
        images = torch.zeros(BATCH, net.in_channels, size, size).to(memory_format=torch.channels_last)
        batch = Batch((images,), torch.zeros(BATCH, dtype=torch.long), torch.arange(BATCH))
        threads = torch.get_num_threads()
        ends = [time.perf_counter() for _ in embed_batches(infer.stage_features, [batch] * 4 * threads, device)]
        warm = 2 * threads  # the first batches of a thread also prepare its kernels
        return (ends[-1] - ends[warm - 1]) / (BATCH * (len(ends) - warm))

    small, large = (seconds(size) for size in _TIMED)
    slope = max(large - small, 0.0) / (_TIMED[1] ** 2 - _TIMED[0] ** 2)
    reading = _seconds_to_read(images, preprocessing)
    return lambda size: max(small + slope * (size**2 - _TIMED[0] ** 2), small * size / _TIMED[0] / 4) + reading


def _seconds_to_read(images: ImageDataset, preprocessing: Preprocessing) -> float:
    """Seconds to read one image: large photographs take longer to decode than to embed."""
    some = images.select(np.linspace(0, len(images) - 1, min(_READ, len(images))).astype(np.int64))
    ends = [
        time.perf_counter() for _ in in_parallel(lambda batch: batch, eval_loader(some, preprocessing, batch_size=1))
    ]
    return float(np.median(np.diff(ends))) if len(ends) > 1 else 0.001  # the first one also loads the decoders


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

    A sample of the images decides. What it embeds stays in the cache for the chosen size.
    """
    rows = sample_rows(data, SAMPLE, seed)
    images, labels = data.train.select(rows), data.train.targets[rows]
    counts = np.bincount(labels, minlength=len(data.classes)).tolist()
    name, settings = head["name"], {key: value for key, value in head.items() if key != "name"}
    best, right = sizes[0], None
    for size in sizes:
        preprocessing = seen(size)
        cache = embedding_cache(weights, preprocessing, data.in_channels, net)
        what = f"{size} px"
        features = embed_images(
            net, images, preprocessing, cache=cache, device=device, workers=workers, progress=partial(progress, what)
        )
        standard = (features - features.mean(0)) / features.std(0, correction=0).clamp_min(1e-6)
        target = torch.from_numpy(labels)
        # Without time the default settings alone are tried.
        found = choose_head(standard, target, counts, name=name, settings=settings, folds=FOLDS, seed=seed, seconds=0)
        scored = np.flatnonzero(~np.isnan(found.logits[:, 0]))
        correct = found.logits[scored].argmax(1) == labels[scored]
        if right is None or is_better(correct, right, labels[scored]):
            best, right = size, correct
    return best


def fit_frozen_head(
    net: StageFeatureNet,
    data: LongTailData,
    preprocessing: Preprocessing,
    weights: PretrainedWeights | None,
    head: dict[str, Any],
    *,
    mirror: bool,
    seed: int,
    seconds: float | None,
    workers: int,
    device: torch.device | str,
    say: Say,
    progress: Progress,
    own_validation: bool = True,
) -> FrozenHead:
    """Fit the head of `net` in place.

    Args:
        net: whose backbone has its weights.
        data: the images.
        preprocessing: how the network sees them.
        weights: that the backbone has, for the key of the cache; None keeps nothing.
        head: `name` and settings; a knob that is not set is chosen by cross-validation.
        mirror: whether the head learns from mirrored images as well; the cross-validation does not.
        seed: of the folds.
        seconds: of the whole run, of which the cross-validation takes a share.
        workers: processes that decode.
        device: where to embed.
        say: tells the user.
        progress: is told what is done, how far, of how much.
        own_validation: whether the validation images are the user's, and not drawn from those of training.
    """
    name, settings = head["name"], {key: value for key, value in head.items() if key != "name"}

    def embed(images: ImageDataset, what: str, *, mirrored: bool = False) -> Tensor:
        cache = embedding_cache(weights, preprocessing, data.in_channels, net, mirrored=mirrored) if weights else None
        found = embed_images(
            net,
            images,
            preprocessing,
            cache=cache,
            device=device,
            workers=workers,
            mirrored=mirrored,
            progress=partial(progress, what),
        )
        if cache is not None:
            cache.trim()
            if cache.problem:
                say(cache.problem)
        return found

    judged = own_validation and can_judge(data)
    views = [embed(data.train, "embedding")]
    if mirror:
        views.append(embed(data.train, "mirrored", mirrored=True))
    validation = embed(data.val, "validation") if judged else None
    features = views[0]
    target = torch.from_numpy(data.train.targets)
    labels = data.val.targets if judged else data.train.targets
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
            folds=FOLDS,
            seed=seed,
            seconds=None if seconds is None else _CHOOSE_SHARE * seconds,
            most_images=most_images(counts),
            validation=None
            if validation is None
            else ((validation - net.centre) / net.spread, torch.from_numpy(data.val.targets)),
            progress=partial(progress, "choosing the head"),
        )
        if mirror:
            net.standardise(torch.cat(views))
            standard = (torch.cat(views) - net.centre) / net.spread
            counts, target = [2 * count for count in counts], torch.cat([target, target])
        net.classifier = HEADS[name](counts, **choice.settings).fit(standard, target)
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(str(error.args[0] if error.args else error), "", "`longtail list heads` shows all") from error
    scored = np.flatnonzero(~np.isnan(choice.logits[:, 0]))
    if len(scored):
        temperature = believable_temperature(choice.logits[scored], labels[scored])
        net.temperature.fill_(temperature)
        choice = replace(choice, logits=choice.logits / np.float32(temperature))
    unscored = 0 if judged else sum(count == 1 for count in data.class_counts)
    where = "on the validation images" if judged else f"in {FOLDS}-fold cross-validation"
    where += f", without the {counted(unscored, 'class')} of one image" if unscored else ""
    score = (
        f"{choice.balanced:.1%} balanced accuracy {where}"
        if len(scored)
        else "not scored, since no class has two images"
    )
    say(f"head     {name}: {score} ({format_duration(choice.seconds)})")
    return FrozenHead({"name": name, **choice.settings}, choice, features)


def can_judge(data: LongTailData) -> bool:
    """Whether the validation images are enough to choose a head by, and of more than half of the classes."""
    trained = sum(count > 0 for count in data.class_counts)
    return len(data.val) >= ENOUGH_TO_JUDGE and 2 * len(np.unique(data.val.targets)) > trained


def embedding_cache(
    weights: PretrainedWeights,
    preprocessing: Preprocessing,
    in_channels: int,
    net: StageFeatureNet,
    *,
    mirrored: bool = False,
) -> EmbeddingCache:
    """The cache of what this network makes of images seen this way."""
    return EmbeddingCache(
        {
            "format": 3,
            "weights": weights.digest,
            "model": weights.model,
            "features": (net.features, net.num_features),
            "in_channels": in_channels,
            "size": preprocessing.size,
            "mean": preprocessing.mean,
            "std": preprocessing.std,
            "view": repr(preprocessing.evaluation()),
            "mirrored": mirrored,
            "torch": torch.__version__,
        }
    )


def most_images(counts: list[int], total: int = _MOST_TO_CHOOSE) -> int | None:
    """The images of a class to choose by, so that all together are at most `total`, or ten a class."""
    if sum(counts) <= total:
        return None
    most = max(counts)
    while most > 10 and sum(min(count, most) for count in counts) > total:
        most = int(most * 0.9)
    return most


def sample_rows(data: LongTailData, sample: int, seed: int) -> NDArray[np.int64]:
    """About so many training images, of each large class the same number, in their order."""
    most = most_images(list(data.class_counts), sample)
    generator = np.random.default_rng(seed)
    members = [generator.permutation(np.flatnonzero(data.train.targets == k))[:most] for k in range(len(data.classes))]
    return np.sort(np.concatenate(members))


def scored_images(choice: HeadChoice, data: LongTailData) -> tuple[Any, NDArray[np.float32]]:
    """The training images that the cross-validation scored, and their logits."""
    rows = np.flatnonzero(~np.isnan(choice.logits[:, 0]))
    return data.train.select(rows), choice.logits[rows]
