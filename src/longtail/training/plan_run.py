"""Settle what only the data and the clock can tell: the network, the size of the images, the epochs.

A run from pretrained weights first fits a head on frozen features: its size is the largest at which all images are
embedded in time. What is left may go to fine-tuning. A run from scratch gets the epochs that fit. The plan is made of
measurements on this machine, so it differs from one to another; config.yaml has what was settled, and repeats it.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from longtail._errors import UsageError, counted
from longtail.data import LongTailData
from longtail.data.preprocessing import preprocessing_of
from longtail.models.pretrained_weights import PretrainedWeights
from longtail.models.stage_feature_net import StageFeatureNet
from longtail.training.best_epoch import check_validated
from longtail.training.build import (
    build_run,
    name_network,
    open_data,
    preprocessing_for,
    weights_for,
    workers_for,
)
from longtail.training.build_method import build_method, find_method
from longtail.training.callback import Callback
from longtail.training.choose_features import FEATURES, Features, choose_features
from longtail.training.duration import format_duration
from longtail.training.frozen_head import (
    EMBED_SHARE,
    ENOUGH_TO_JUDGE,
    SAMPLE,
    SIZES,
    SMALL,
    affordable_size,
    choose_size,
    time_embedding,
)
from longtail.training.loggers import check_loggers
from longtail.training.recipes import find_recipe
from longtail.training.run_config import OptimConfig, RunConfig
from longtail.training.speed import measure_speed

MINUTES = {"fast": 1.0, "good": 3.0, "best": 15.0}
# Fine-tuning is worth its while from so many epochs on, in what is left of the time; more than so many do not help.
_FEWEST_EPOCHS, _MOST_EPOCHS = 3, 10
# The share of the training images that judges fine-tuning, where there is no validation split.
_HELD_OUT = 0.2
# Smaller sizes that are tried for small images, and the share of the time for it.
_SMALLER = (128, 64, 32)
_SIZES_SHARE = 0.3
# The size at which features are tried, the share of the time for it, and the images without which it is left out.
_TRIAL, _FEATURES_SHARE, _FEWEST_IN_SAMPLE = 128, 0.15, 200
# A step of training costs about as much as so many of inference.
_TRAINING_COST = 3.5
# From scratch: at most so many epochs, and at least one. With fewer than enough, smaller images teach more in the time.
_MOST_FROM_SCRATCH, _ENOUGH_FROM_SCRATCH = 300, 20
_SIZES_FROM_SCRATCH = (160, 128, 96, 64, 48, 32)
# Seconds for starting, the head and the report of a small run.
_OVERHEAD = 15
# The share of the time that is planned; the rest is for the report, and for measurements that were too good.
_PLANNED = 0.85
# With this share of the time left after the head is fitted, larger images are considered.
_MUCH_LEFT = 0.4


@dataclass(frozen=True)
class Budget:
    """The time of a run.

    Args:
        seconds: all of it; None for no limit.
        started: when it began, by the monotonic clock.
    """

    seconds: float | None
    started: float

    @property
    def left(self) -> float:
        """Seconds until the end; infinite without a limit."""
        return float("inf") if self.seconds is None else self.seconds - (time.monotonic() - self.started)


def budget_of(config: RunConfig, started: float) -> Budget:
    """The time that a run may take: none is set where its epochs are."""
    if config.time is None and config.epochs is not None:
        return Budget(None, started)
    return Budget(60 * (config.time or MINUTES[config.quality]), started)


def plan_run(
    config: RunConfig,
    data: LongTailData,
    budget: Budget,
    *,
    device: torch.device,
    callback: Callback,
    embed: bool = True,
) -> RunConfig:
    """The settings with network, size and epochs; what the user set stays.

    Args:
        config: the settings.
        data: the images.
        budget: of the run.
        device: where it computes.
        callback: is told what was chosen, and how far the work is.
        embed: whether small images may be embedded at several sizes to choose one.
    """
    asked, config = config, name_network(config, data)
    weights = weights_for(config)
    if weights is None and config.method["name"] == "fine_tune":
        callback.say(
            f"no weights for {config.model.name} on this machine (--pretrained downloads them): training from scratch"
        )
        config = _from_scratch(config)
    if config.head is not None:
        return _plan_head(config, data, budget, weights, device=device, callback=callback, embed=embed)
    if config.epochs is None and config.image_size is None and weights is None:
        return _plan_from_scratch(replace(config, model=replace(config.model, name=asked.model.name)), data, budget)
    if config.epochs is None:
        config = replace(config, epochs=_affordable_epochs(config, data, budget))
    return config


def resolve_run(config: RunConfig) -> RunConfig:
    """The settings with nothing left open, planned for this machine; refuses what training would refuse."""
    check_loggers(config.loggers)
    budget = budget_of(config, time.monotonic())
    find_method(config)
    data = open_data(config)
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    device = found or torch.device("cpu")
    config = plan_run(config, data, budget, device=device, callback=Callback(), embed=False)
    check_validated(config, len(data.val) or int(config.head is not None and bool(config.val_fraction)))
    return build_run(config, data).config


def describe_data(data: LongTailData, folder: Path) -> list[str]:
    """The first lines on the screen, before the run is planned."""
    counts = [count for count in data.class_counts if count]
    return [
        f"data     {data.name}: {len(data.train):,} images of {counted(len(data.classes), 'class')} "
        f"({max(counts):,} to {min(counts):,} each)",
        f"folder   {folder}",
    ]


def describe_run(
    config: RunConfig, data: LongTailData, budget: Budget, *, device: torch.device, trains: bool = True
) -> list[str]:
    """The lines after these: network, weights and licence, method, time."""
    weights = weights_for(config)
    whose = "from scratch" if weights is None else f"{weights.source} ({weights.licence})"
    size = config.image_size or preprocessing_for(config, data, weights).size
    cells = " of a 3 x 3 grid" if config.model.features == "grid" else ""
    how = [] if config.head is None else [f"{config.head['name']} head on frozen features{cells}"]
    if config.epochs:
        how.append(f"{config.method['name']} for {counted(config.epochs, 'epoch')}")
    limit = "no limit" if budget.seconds is None else f"at most {format_duration(budget.seconds)}"
    if not trains:
        limit = "that of the predictions: nothing more is trained"
    elif budget.seconds is None and config.epochs:
        limit += "; an estimate follows the first steps"
    return [
        f"network  {config.model.name} at {size} px on {device}",
        f"weights  {whose}",
        f"method   {', then '.join(how)}",
        f"time     {limit}",
    ]


def _from_scratch(config: RunConfig) -> RunConfig:
    """The settings for training the same network without weights."""
    recipe = find_recipe(config.data, "erm")
    return replace(
        config,
        method=recipe["method"],
        head=None,
        model=replace(config.model, pretrained=False, features="last"),
        optim=OptimConfig(**recipe["optim"]),
    )


def _plan_head(
    config: RunConfig,
    data: LongTailData,
    budget: Budget,
    weights: PretrainedWeights | None,
    *,
    device: torch.device,
    callback: Callback,
    embed: bool,
) -> RunConfig:
    side = data.typical_side or SIZES[-1]
    cost = time_embedding(_probe(config, data), data.train, preprocessing_for(config, data, weights), device)
    images = len(data.train) + len(data.val) + len(data.test)
    size = config.image_size or affordable_size(cost, images, side=side, seconds=budget.left * _PLANNED)
    if budget.seconds is not None and images * cost(size) > budget.left:
        callback.say(
            f"{format_duration(budget.seconds)} is too short for {counted(images, 'image')}: at {size} px, "
            f"the {'size that was asked for' if config.image_size else 'smallest size'}, this takes about "
            f"{format_duration(budget.seconds - budget.left + images * cost(size) + _OVERHEAD)}"
        )
    if config.model.features is None:
        trial = min(size, _TRIAL)
        sample = min(SAMPLE, _FEATURES_SHARE * budget.left / (2 * cost(trial)))
        found: Features = "stages"
        if embed and weights is not None and sample >= min(_FEWEST_IN_SAMPLE, len(data.train)):
            found = _choose_features(config, data, weights, trial, int(sample), device=device, callback=callback)
        config = replace(config, model=replace(config.model, features=found))
        if config.image_size is None:  # the trial has taken time
            size = affordable_size(cost, images, side=side, seconds=budget.left * _PLANNED)
    if config.model.features == "grid" and dict(config.head or {}).get("name") == "linear":
        # To whiten so many features takes minutes.
        config = replace(config, head={"whitening": None, **(config.head or {})})
    if budget.seconds is None:
        fraction = config.val_fraction
        if config.epochs and not fraction and not len(data.val):
            fraction = _HELD_OUT
        return replace(config, image_size=size, epochs=config.epochs or 0, val_fraction=fraction)
    if config.image_size is None and embed and weights is not None and side <= SMALL:
        smaller = [other for other in _SMALLER if side <= other < size]
        spent = min(SAMPLE, len(data.train)) * sum(cost(other) for other in smaller)
        if spent < _SIZES_SHARE * budget.left:
            size = affordable_size(cost, images, side=side, seconds=(budget.left - spent) * _PLANNED)
            sizes = [size, *(other for other in smaller if other < size)]
        else:
            sizes = [size]
        if len(sizes) > 1:
            size = choose_size(
                _probe(config, data, weights),
                data,
                lambda other: preprocessing_for(replace(config, image_size=other), data, weights),
                weights,
                dict(config.head or {}),
                sizes,
                seed=config.seed,
                workers=workers_for(config, data.train),
                device=device,
                progress=callback.progress,
            )
    epochs = config.epochs
    if epochs is None:
        embedding = images * cost(size)
        # Embedded again after fine-tuning, to fit the head anew.
        left = _PLANNED * budget.left - 2 * embedding
        affordable = int(left / max(_TRAINING_COST * cost(size) * len(data.train), 1e-9))
        judges = len(data.val) or _HELD_OUT * len(data.train)
        epochs = min(affordable, _MOST_EPOCHS) if affordable >= _FEWEST_EPOCHS and judges >= ENOUGH_TO_JUDGE else 0
    fraction = config.val_fraction
    if epochs and not fraction and not len(data.val):
        fraction = _HELD_OUT
    mirror = config.mirror_features
    if mirror is None:
        flips = preprocessing_for(replace(config, image_size=size), data, weights).flip
        twice = (images + len(data.train)) * cost(size)
        mirror = not epochs and flips and size == SIZES[-1] and twice <= EMBED_SHARE * _PLANNED * budget.left
    return replace(config, image_size=size, epochs=epochs, val_fraction=fraction, mirror_features=mirror)


def _choose_features(
    config: RunConfig,
    data: LongTailData,
    weights: PretrainedWeights,
    size: int,
    sample: int,
    *,
    device: torch.device,
    callback: Callback,
) -> Features:
    return choose_features(
        {kind: _probe(replace(config, model=replace(config.model, features=kind)), data, weights) for kind in FEATURES},
        data,
        preprocessing_for(replace(config, image_size=size), data, weights),
        weights,
        dict(config.head or {}),
        sample=sample,
        seed=config.seed,
        workers=workers_for(config, data.train),
        device=device,
        progress=callback.progress,
    )


def larger_size(config: RunConfig, data: LongTailData, budget: Budget, *, device: torch.device) -> int | None:
    """A larger size than that of a head that is fitted, if there is time for it after all.

    The plan is measured at the start. If the machine was busy then, and is not any more, most of the time is left.

    Args:
        config: planned, with the size that was embedded.
        data: the images.
        budget: of the run.
        device: where it computes.
    """
    size, side = config.image_size or SIZES[-1], data.typical_side or SIZES[-1]
    if budget.seconds is None or config.planned_epochs or side <= SMALL or size >= SIZES[-1]:
        return None
    if budget.left < _MUCH_LEFT * budget.seconds:
        return None
    cost = time_embedding(
        _probe(config, data), data.train, preprocessing_for(config, data, weights_for(config)), device
    )
    images = len(data.train) + len(data.val) + len(data.test)
    larger = affordable_size(cost, images, side=side, seconds=budget.left * _PLANNED)
    return larger if larger > size else None


def _probe(config: RunConfig, data: LongTailData, weights: PretrainedWeights | None = None) -> StageFeatureNet:
    """A network to measure."""
    net = build_method(
        config,
        class_counts=list(data.class_counts),
        in_channels=data.in_channels,
        image_size=config.image_size or 64,
        weights=weights,
    ).model
    if not isinstance(net, StageFeatureNet):
        raise UsageError(
            f"model.features must be stages or grid for a head, got {config.model.features!r}",
            "the head is fitted on the features of all stages",
            "--set model.features=stages",
        )
    return net


def _plan_from_scratch(config: RunConfig, data: LongTailData, budget: Budget) -> RunConfig:
    """The settings with the largest size at which there is time for enough epochs, and the network for it."""
    usual = preprocessing_of(data).size
    sizes = [usual, *(size for size in _SIZES_FROM_SCRATCH if size < usual)]
    while True:
        size = sizes.pop(0)
        found = name_network(replace(config, image_size=size), data)
        epochs = _affordable_epochs(found, data, budget)
        # The cost of a step falls at most with the area.
        sizes = [other for other in sizes if epochs * (size / other) ** 2 >= _ENOUGH_FROM_SCRATCH] or sizes[-1:]
        if epochs >= _ENOUGH_FROM_SCRATCH or not sizes:
            return replace(found, epochs=epochs)


def _affordable_epochs(config: RunConfig, data: LongTailData, budget: Budget) -> int:
    """The epochs from scratch that fit into what is left of the time."""
    if budget.seconds is None:
        return 100
    one = replace(config, epochs=_FEWEST_EPOCHS, eval_every=1)
    speed = measure_speed(one, data)
    total = _PLANNED * budget.left
    several = [replace(config, epochs=n) for n in range(1, _MOST_FROM_SCRATCH + 1)]
    fitting = [n for n, each in enumerate(several, start=1) if speed.seconds(each, data) <= total]
    return max(fitting, default=1)
