"""What the training loop costs: a step of a run against the same step in a bare loop.

    python -m benchmarks.speed.train_step

ResNet-20 on batches of 128 images of 32 x 32, cross-entropy, SGD with momentum. Both take the same batches in turns;
the ratio of medians is reported, with the quartiles of the paired ratios.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from lightning_fabric import Fabric
from torch.nn import functional as F

from benchmarks.record import append_record
from benchmarks.speed import RESULTS
from longtail.class_counts import ClassCounts
from longtail.data import ArrayImages, LongTailData
from longtail.models import create_model
from longtail.training import Callback, build_config
from longtail.training.build import build_run, training_loader
from longtail.training.loop import TrainingLoop
from longtail.training.run_folder.write import RunFolder

SETTINGS = {
    "model": {"name": "resnet20"},
    "method": {"name": "erm"},
    "batch_size": 128,
    "workers": 0,
    "precision": "32",
}


def make_training(folder: Path) -> TrainingLoop:
    """A run on random images, which the step does not mind."""
    config = build_config(SETTINGS)
    draw = np.random.default_rng(0)
    images = ArrayImages(draw.integers(0, 255, (1280, 32, 32, 3), dtype=np.uint8), np.arange(1280) % 10)
    counts = ClassCounts([128] * 10)
    names = tuple(map(str, range(10)))
    data = LongTailData("random", images, images, images, names, counts, (0.5,) * 3, (0.25,) * 3, 3, (32, 32))
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    return TrainingLoop(build_run(config, data), RunFolder(folder), fabric, Callback())


def main() -> None:
    """Measure and append the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    seconds: dict[str, list[float]] = {"run": [], "bare": []}
    with tempfile.TemporaryDirectory() as place:
        training = make_training(Path(place))
        model = create_model("resnet20", 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
        loader = training_loader(training.parts)
        batches = list(loader)
        training.method.train()
        for turn in range(-3, rounds):  # the first three warm up
            batch = batches[turn % len(batches)]
            start = time.perf_counter()
            training._one_step((batch,), steps=len(batches))
            middle = time.perf_counter()
            loss = F.cross_entropy(model(batch.views[0]), batch.target)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            float(loss.detach())
            end = time.perf_counter()
            if turn >= 0:
                seconds["run"].append(middle - start)
                seconds["bare"].append(end - middle)
    paired = [a / b for a, b in zip(seconds["run"], seconds["bare"], strict=True)]
    low, _, high = statistics.quantiles(paired, n=4)
    medians = {name: 1e3 * statistics.median(values) for name, values in seconds.items()}
    ratio = medians["run"] / medians["bare"]
    print(
        f"a step of a run takes {ratio:.3f}x the bare loop's (quartiles of pairs {low:.3f} to {high:.3f}); {medians} ms"
    )
    append_record(
        RESULTS,
        labels={"benchmark": "train_step"},
        command=f"python -m benchmarks.speed.train_step --rounds {rounds}",
        settings=SETTINGS | {"rounds": rounds},
        metrics={"run_over_bare": ratio, "quartiles": [low, high], "milliseconds": medians},
    )


if __name__ == "__main__":
    main()
