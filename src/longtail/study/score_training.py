"""The score of a trial: balanced accuracy on images that it was not trained on. Test images are taken away before.

A head is scored on embeddings that are computed once: by cross-validation, or on the validation images where these are
the user's and enough, or where other trials are fine-tuned, so that all scores are of the same images.
Anything else is trained and scored on validation.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor

from longtail._errors import UsageError
from longtail.data import LongTailData
from longtail.heads import balanced_accuracy
from longtail.heads.choose_head import deal_folds, predict_fold
from longtail.models.stage_feature_net import StageFeatureNet
from longtail.training.build import build_run, workers_for
from longtail.training.callback import Callback
from longtail.training.embed_images import embed_images
from longtail.training.fit_head import fit_head, keeper_for
from longtail.training.frozen_head import embedding_cache, most_images
from longtail.training.loop import TrainingLoop
from longtail.training.run_config import RunConfig, build_config
from longtail.training.run_folder.write import RunFolder
from longtail.training.settings import Settings, merge

FOLDS = 4

# Is told a step and the score so far, and raises to end the trial.
Reported = Callable[[int, float], None]


def without_test(data: LongTailData) -> LongTailData:
    """The data with no test image: nothing of a study can be chosen by one."""
    return replace(data, test=data.test.select([]))


@dataclass(frozen=True)
class Embedded:
    """Features of the images that score heads.

    Args:
        features: standardised over the images that train.
        target: of each.
        fold: of each; −1 for one that only trains.
        folds: how many.
        classes: how many.
    """

    features: Tensor
    target: Tensor
    fold: NDArray[np.int64]
    folds: int
    classes: int

    def score(self, head: Mapping[str, Any], reported: Reported) -> float:
        """The balanced accuracy of a head on all folds; `reported` is told of each."""
        settings = {key: value for key, value in head.items() if key != "name"}
        labels = self.target.numpy()
        correct, scored = np.zeros(len(labels), bool), np.zeros(len(labels), bool)
        score = 0.0
        for number in range(self.folds):
            logits = predict_fold(self.features, self.target, self.fold, number, head["name"], settings, self.classes)
            rows = np.flatnonzero(self.fold == number)
            correct[rows], scored[rows] = logits.argmax(1) == labels[rows], True
            score = balanced_accuracy(correct[scored], labels[scored])
            reported(number, score)
        return score


def embed_for_heads(
    config: RunConfig, data: LongTailData, *, device: torch.device, callback: Callback, validate: bool
) -> Embedded:
    """Embed the images that score heads.

    Args:
        config: of the study.
        data: without test images.
        device: where to embed.
        callback: is told how far it is.
        validate: score on the validation images, instead of cross-validation on the training images.
    """
    parts = build_run(config, data, device=device)
    net = parts.method.model
    if not isinstance(net, StageFeatureNet):
        raise UsageError("model.features must be stages or grid for a head", "", "--set model.features=stages")
    cache = embedding_cache(parts.weights, parts.preprocessing, data.in_channels, net) if parts.weights else None
    embed = partial(
        embed_images,
        net,
        preprocessing=parts.preprocessing,
        cache=cache,
        device=device,
        workers=workers_for(parts.config, data.train),
        progress=partial(callback.progress, "embedding"),
    )
    train, labels = embed(data.train), data.train.targets
    net.cpu().standardise(train)
    if validate:
        features, target = torch.cat([train, embed(data.val)]), np.concatenate([labels, data.val.targets])
        fold, folds = np.repeat([-1, 0], [len(labels), len(data.val)]), 1
    else:
        features, target, folds = train, labels, FOLDS
        fold = deal_folds(labels, FOLDS, config.seed, most_images(list(data.class_counts)))
    standard = (features - net.centre) / net.spread
    return Embedded(standard, torch.from_numpy(target), fold, folds, len(data.classes))


class _Watch(Callback):
    """Passes the score of each epoch on, and looks at the clock after each step."""

    def __init__(self, reported: Reported, check: Callable[[], None]) -> None:
        self._reported, self._check = reported, check

    def step(self, **_: object) -> None:
        """A batch is done."""
        self._check()

    def epoch(self, row: Mapping[str, float | None]) -> None:
        """An epoch is done."""
        score = row.get("val/balanced")
        if score is not None:
            self._reported(int(row["epoch"] or 0), score)


def score_training(
    base: RunConfig,
    settings: Settings,
    data: LongTailData,
    fabric: Fabric,
    *,
    reported: Reported,
    check: Callable[[], None],
) -> float:
    """Train, and measure the balanced accuracy on validation.

    Args:
        base: settings of the study.
        settings: those of the trial, over them.
        data: with validation images and without test images.
        fabric: launched.
        reported: is told the score after each epoch.
        check: is called after each step.
    """
    data = replace(data, test=data.val)  # what a method records of itself, it records of these
    parts = build_run(trial_config(base, settings), data, device=fabric.device)
    watch = _Watch(reported, check)
    parts, head = fit_head(parts, None, fabric, Callback(), own_validation=False)
    keeper = keeper_for(parts, head, fabric) if head is not None else None
    with tempfile.TemporaryDirectory(prefix="longtail-trial-") as place:
        loop = TrainingLoop(parts, RunFolder(Path(place)), fabric, watch)
        loop.run()
        logits = loop.predict("val") if keeper is None else keeper.choose(all_images=False)[1]
    target = data.val.targets
    return balanced_accuracy(logits.argmax(1) == target, target)


def trial_config(base: RunConfig, settings: Settings) -> RunConfig:
    """The settings of a trial over those of the study; a method or head is taken whole where its name changes."""
    return build_config(merge(base.as_dict(), settings))
