"""Fit every head on the frozen features of a folder, for several draws of the training images.

    python -m benchmarks.studies.heads.run --folders DEST --seeds 0 1 2      # DEST by benchmarks.studies.folders

A seed draws nine in ten training images of each class, at least one; the test images stay. Heads have their default
settings, so nothing is chosen: not by the test images, nor by any others. Features come from the packaged weights at
one size for each folder. A line has balanced accuracy and those of the groups, in shares, the expected calibration
error, the seconds of the fit, and the size. What has a line is skipped.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.record import append_record, current_commit, read_records
from benchmarks.studies.folders.make_folders import MAKERS
from longtail.data import open_dataset
from longtail.data.preprocessing import preprocessing_of
from longtail.evaluation import evaluate
from longtail.heads import HEADS
from longtail.models import create_model, find_weights
from longtail.models.stage_feature_net import StageFeatureNet
from longtail.training.embed_images import embed_images
from longtail.training.frozen_head import embedding_cache

HERE = Path(__file__).parent
MODEL = "tf_efficientnet_lite0"
SIZES = {"plants": 128, "groceries": 128, "cifar100-lt": 96, "digits-lt": 32, "clothes-lt": 96}
# Each head as it comes, and the linear one with other losses.
ARMS: dict[str, dict[str, Any]] = {name: {"name": name} for name in HEADS} | {
    "linear, whitened": {"name": "linear", "whitening": 1.0},
    "linear, no smoothing": {"name": "linear", "label_smoothing": 0.0},
    "linear, no adjustment": {"name": "linear", "strength": 0.0},
    "linear, cross-entropy": {"name": "linear", "strength": 0.0, "label_smoothing": 0.0},
    "linear, focal": {"name": "linear", "loss": "focal"},
    "linear, class_balanced": {"name": "linear", "loss": "class_balanced"},
    "linear, label_aware_smoothing": {"name": "linear", "loss": "label_aware_smoothing"},
}
KEPT = 0.9


def draw(target: Tensor, seed: int) -> Tensor:
    """The rows of nine in ten images of each class, at least one."""
    generator = np.random.default_rng(seed)
    rows = []
    for k in target.unique():
        members = np.flatnonzero(target.numpy() == int(k))
        rows.append(generator.permutation(members)[: max(1, round(KEPT * len(members)))])
    return torch.from_numpy(np.sort(np.concatenate(rows)))


def features_of(folder: Path, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor, tuple[str, ...]]:
    """Features and labels of the training and of the test images, and the classes."""
    data = open_dataset(folder, val_fraction=0)
    weights = find_weights(MODEL, None)
    assert weights is not None
    seen = replace(preprocessing_of(data, size, mean=weights.mean, std=weights.std), whole=True, resized=True)
    net = StageFeatureNet(create_model(MODEL, 2, pretrained=None), 2)
    cache = embedding_cache(weights, seen, data.in_channels, net)
    train, test = (embed_images(net, images, seen, cache=cache) for images in (data.train, data.test))
    return train, torch.from_numpy(data.train.targets), test, torch.from_numpy(data.test.targets), data.classes


def main() -> None:
    """Run what has no record yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folders", type=Path, required=True, help="made by benchmarks.studies.folders.make_folders")
    parser.add_argument("--sets", nargs="+", choices=MAKERS, default=list(MAKERS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=HERE / "results.jsonl")
    options = parser.parse_args()
    done = {(r["set"], r["arm"], r["seed"]) for r in read_records(options.out)}
    for name in options.sets:
        features, target, others, labels, classes = features_of(options.folders / name, SIZES[name])
        for seed in options.seeds:
            rows = draw(target, seed)
            centre, spread = features[rows].mean(0), features[rows].std(0, correction=0).clamp_min(1e-6)
            train, test = (features[rows] - centre) / spread, (others - centre) / spread
            counts = torch.bincount(target[rows], minlength=len(classes)).tolist()
            for arm, settings in ARMS.items():
                if (name, arm, seed) in done:
                    continue
                arguments = {key: value for key, value in settings.items() if key != "name"}
                start = time.process_time()
                head = HEADS[settings["name"]](counts, **arguments).fit(train, target[rows])
                seconds = time.process_time() - start
                with torch.no_grad():
                    logits = head(test).numpy()
                metrics = evaluate(logits, labels.numpy(), counts, classes).metrics
                append_record(
                    options.out,
                    command=f"python -m benchmarks.studies.heads.run --sets {name} --seeds {seed}",
                    settings=settings | {"size": SIZES[name]},
                    metrics={key: value for key, value in metrics.items() if value is not None}
                    | {"seconds": round(seconds, 2)},
                    seed=seed,
                    commit=current_commit(),
                    labels={"set": name, "arm": arm},
                )
                print(f"{name} {arm} {seed}: {metrics['balanced']:.3f}", flush=True)


if __name__ == "__main__":
    main()
