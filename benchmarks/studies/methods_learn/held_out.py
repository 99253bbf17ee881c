"""Try settings of an arm on held-out training images; no test image takes part.

    python -m benchmarks.studies.methods_learn.held_out mislas --set method.norm_policy=frozen

Of the 120 training images of each digit, 30 are held out and stand in for the test images. The long tail, 90 images to
one, is drawn from the others. Seeds are 0, 1 and 2, not those of the study. Each run appends a line to held_out.jsonl;
what has a line already is skipped. Without `--set` the arm has its recipe.
"""

import argparse
import dataclasses
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.record import append_record, read_records
from benchmarks.studies.methods_learn.run import DATA, EPOCHS, NETWORK, all_arms
from longtail.data.datasets.arrays import Arrays, ArraySet
from longtail.data.datasets.base import DATASETS
from longtail.data.datasets.digits import DIGITS_LT
from longtail.data.splits import long_tail_indices
from longtail.training import build_config, train
from longtail.training.settings import layer_settings

RECORDS = Path(__file__).parent / "held_out.jsonl"
HELD_OUT_EACH, IMBALANCE = 30, 90
NAME, SEEDS = "digits-lt-held-out", (0, 1, 2)


class HeldOut(ArraySet):
    """A set whose training images are parted, the same whatever the seed; its test images take no part."""

    def load(self, root: Path) -> Arrays:
        """Some of the training images of each class in the place of the test images."""
        pool = super().load(root).train
        held_out = long_tail_indices(pool.targets, [HELD_OUT_EACH] * len(self.classes))
        return Arrays(pool.select(np.setdiff1d(np.arange(len(pool)), held_out)), pool.select(held_out))


def settings_of(arm: str, seed: int, epochs: int, overrides: Sequence[str]) -> dict[str, Any]:
    """Those of the study, on the other images."""
    base = all_arms()[arm]
    flags: dict[str, Any] = {
        "data": DATA,
        "method": {"name": base.recipe},
        "model": {"name": NETWORK, "pretrained": False},
    }
    flags |= {"workers": 0, "seed": seed, "epochs": epochs, "eval_every": epochs}
    settings = layer_settings(flags, overrides=[*base.settings, *overrides])
    return settings | {"data": f"{NAME}:{IMBALANCE}"}


def balanced(settings: Mapping[str, Any]) -> dict[str, float | None]:
    """The metrics of a run of these settings."""
    torch.set_num_threads(1)
    if NAME not in DATASETS:
        fields = {field.name: getattr(DIGITS_LT, field.name) for field in dataclasses.fields(DIGITS_LT)}
        DATASETS.register(NAME)(HeldOut(**fields | {"name": NAME}))
    with tempfile.TemporaryDirectory() as place:
        return dict(train(build_config(settings), out=Path(place) / "run").metrics)


def carry_out(arm: str, seed: int, epochs: int, overrides: Sequence[str]) -> float:
    """Run, append the record, and return the balanced accuracy."""
    settings, start = settings_of(arm, seed, epochs, overrides), time.monotonic()
    metrics = balanced(settings)
    words = "".join(f" --set {text}" for text in overrides)
    append_record(
        RECORDS,
        command=f"python -m benchmarks.studies.methods_learn.held_out {arm} --epochs {epochs}{words}",
        settings=settings,
        metrics=metrics | {"seconds": round(time.monotonic() - start, 1)},
        seed=seed,
        labels={"study": "methods_learn_held_out", "arm": arm, "epochs": epochs, "set": list(overrides)},
    )
    return float(metrics["balanced"] or 0.0)


def main() -> None:
    """Run what has no record yet, two at a time, and print the mean."""
    parser = argparse.ArgumentParser(description="Try settings on held-out training images.")
    parser.add_argument("arm", choices=all_arms())
    parser.add_argument("--set", nargs="+", action="extend", default=[], dest="overrides")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    options = parser.parse_args()
    found = {
        record["seed"]: float(record["metrics"]["balanced"])
        for record in read_records(RECORDS)
        if (record["arm"], record["epochs"], record["set"]) == (options.arm, options.epochs, options.overrides)
    }
    todo = [seed for seed in SEEDS if seed not in found]
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(2) as pool:
        jobs = {seed: pool.submit(carry_out, options.arm, seed, options.epochs, options.overrides) for seed in todo}
        found |= {seed: job.result() for seed, job in jobs.items()}
    values = [100 * value for value in found.values()]
    spread = f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"
    print(f"{options.arm} {options.epochs} {' '.join(options.overrides)}: balanced {spread}", flush=True)


if __name__ == "__main__":
    main()
