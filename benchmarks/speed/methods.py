"""What a step of each method costs beside one of `erm`.

    python -m benchmarks.speed.methods
    python -m benchmarks.speed.methods --methods paco ssd --rounds 5
    python -m benchmarks.speed.methods --table        # measures nothing: the table of docs/speed.md, from the records

A step is the trainer's: prepare, forward, backward, optimiser, after_step, with the method's defaults on batches of 64
random images of 32 x 32 and ResNet-20 (`lift` and its `erm` have a small transformer). Loading and views are not in it,
nor what `start_epoch` does once an epoch. Each round times a step of `erm` and then one of the method, so that whatever
slows the machine slows both; the ratio is the median over rounds. A method of stages is measured in each, and the
ratio is their mean, weighted by their share of the training. `passes` is what the method says of itself.
"""

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric

from benchmarks.record import ROOT, append_record, read_records
from benchmarks.speed import RESULTS
from benchmarks.studies.folders.table import fill
from longtail.class_counts import ClassCounts
from longtail.data import ArrayImages, LongTailData
from longtail.data.views import Batch
from longtail.methods import METHODS
from longtail.models import create_model
from longtail.training import Callback, build_config
from longtail.training.build import build_run
from longtail.training.build_method import build_method
from longtail.training.loop import TrainingLoop
from longtail.training.progress import Progress
from longtail.training.run_folder.write import RunFolder

BATCH, SIZE, EPOCHS, NETWORK = 64, 32, 20, "resnet20"
NETWORKS = {"lift": "test_vit"}
COUNTS = (500, 300, 180, 108, 65, 39, 23, 14, 8, 5)


class Cost(NamedTuple):
    """What was measured of a method.

    Attributes:
        passes: as the method says.
        ratio: of its step to that of `erm`, over its stages.
        stages: the ratio of each stage, with the quartiles over rounds.
        per_second: steps a second in the first stage.
    """

    passes: float
    ratio: float
    stages: list[tuple[float, float, float]]
    per_second: float


def random_data() -> LongTailData:
    """Images whose pixels a step does not mind."""
    targets = np.repeat(np.arange(len(COUNTS)), COUNTS)
    pixels = np.random.default_rng(0).integers(0, 255, (len(targets), SIZE, SIZE, 3), dtype=np.uint8)
    images, names = ArrayImages(pixels, targets), tuple(map(str, range(len(COUNTS))))
    centre, spread = (0.5,) * 3, (0.25,) * 3
    return LongTailData("random", images, images, images, names, ClassCounts(COUNTS), centre, spread, 3, (SIZE, SIZE))


def build_training(name: str, network: str, folder: Path) -> TrainingLoop:
    """A run of a method with its defaults; a run that it needs is a network of random weights."""
    settings: dict[str, Any] = {
        "model": {"name": network, "pretrained": False},
        "batch_size": BATCH,
        "image_size": SIZE,
        "epochs": EPOCHS,
        "workers": 0,
        "precision": "32",
        "optim": {"lr": 1e-4},  # nothing is to be learned from random images, nor to diverge
    }
    parts = build_run(build_config(settings | {"method": {"name": "erm"}}), random_data())
    config = replace(parts.config, method={"name": name})
    others = {
        need: create_model(network, len(COUNTS), image_size=SIZE).eval().requires_grad_(False)
        for need in METHODS[name].needs
    }
    method = build_method(config, class_counts=list(COUNTS), in_channels=3, image_size=SIZE, networks=others)
    method.plan(EPOCHS)
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    loop = TrainingLoop(replace(parts, config=config, method=method), RunFolder(folder), fabric, Callback())
    loop.method.train()
    return loop


def random_batches(loop: TrainingLoop, seed: int) -> tuple[Batch, ...]:
    """One for each sampler, with the method's views; labels as frequent as in the training set."""
    draw = torch.Generator().manual_seed(seed)
    shares = torch.tensor(COUNTS, dtype=torch.float32)

    def view() -> torch.Tensor:
        images = torch.randn(BATCH, 3, SIZE, SIZE, generator=draw)
        return images.contiguous(memory_format=torch.channels_last)

    return tuple(
        Batch(
            tuple(view() for _ in loop.method.views),
            torch.multinomial(shares, BATCH, replacement=True, generator=draw),
            torch.arange(BATCH),
        )
        for _ in loop.method.samplers
    )


def seconds_of_step(loop: TrainingLoop, seed: int) -> float:
    """Of one step on new batches."""
    batches = random_batches(loop, seed)
    start = time.perf_counter()
    loop._one_step(batches, steps=1000)
    return time.perf_counter() - start


def measure(name: str, rounds: int, folder: Path) -> Cost:
    """The cost of a method, a step of `erm` on the same network before each of its own."""
    network = NETWORKS.get(name, NETWORK)
    reference, loop = (build_training(each, network, folder / each) for each in ("erm", name))
    starts, stages, per_second, ratio = loop.method.stages, [], 0.0, 0.0
    for start, end in zip(starts, (*starts[1:], 1.0), strict=True):
        loop.progress = Progress(epoch=math.ceil(start * EPOCHS))
        loop.method.set_progress(loop.progress.epoch / EPOCHS)
        pairs = [(seconds_of_step(reference, seed), seconds_of_step(loop, seed)) for seed in range(-2, rounds)][2:]
        low, middle, high = statistics.quantiles([own / plain for plain, own in pairs], n=4)
        stages.append((middle, low, high))
        per_second = per_second or 1 / statistics.median(own for _, own in pairs)
        ratio += (end - start) * middle
    return Cost(METHODS[name].passes, ratio, stages, per_second)


def table(costs: dict[str, Cost]) -> str:
    """A row for each method, the cheapest first."""
    lines = [
        "| Method | Passes, predicted | Step, measured | Its stages (quartiles) | Steps a second |",
        "|---" * 5 + "|",
    ]
    for name in sorted(costs, key=lambda each: costs[each].ratio):
        cost = costs[name]
        stages = ", ".join(f"{middle:.2f} ({low:.2f} to {high:.2f})" for middle, low, high in cost.stages)
        lines.append(f"| `{name}` | {cost.passes:.2f} | {cost.ratio:.2f} | {stages} | {cost.per_second:.1f} |")
    return "\n".join(lines)


def last_costs(records: Sequence[Mapping[str, Any]]) -> dict[str, Cost]:
    """The last measured cost of each method that there is, with what it predicts now."""
    found: dict[str, Mapping[str, Any]] = {}
    for record in records:
        if record.get("benchmark") == "methods":
            found |= record["metrics"]
    return {
        name: Cost(
            METHODS[name].passes,
            found[name]["ratio"],
            [(middle, low, high) for middle, low, high in found[name]["stages"]],
            found[name]["per_second"],
        )
        for name in METHODS
        if name in found
    }


def main() -> None:
    """Measure, print the table, and append the record; or write the table of the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="write the table of docs/speed.md, and measure nothing")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "speed.md")
    options = parser.parse_args()
    if options.table:
        content = table(last_costs(read_records(options.out)))
        options.page.write_text(fill(options.page.read_text(encoding="utf-8"), content), encoding="utf-8")
        return
    costs = {}
    for name in options.methods:
        with tempfile.TemporaryDirectory() as place:
            costs[name] = measure(name, options.rounds, Path(place))
        print(name, f"{costs[name].ratio:.2f}", flush=True)
    print(table(costs))
    append_record(
        options.out,
        labels={"benchmark": "methods"},
        command=f"python -m benchmarks.speed.methods --rounds {options.rounds}",
        settings={"batch_size": BATCH, "image_size": SIZE, "network": NETWORK, "networks": NETWORKS},
        metrics={name: cost._asdict() for name, cost in costs.items()},
    )


if __name__ == "__main__":
    main()
