"""Train every method and preset on the digits with each seed, and append a line for each run.

    python -m benchmarks.studies.methods_learn.run
    python -m benchmarks.studies.methods_learn.run --arms paco ssd --seeds 10

An arm is a method or a preset with its recipe; network, epochs and seeds are the same for all. A run has one thread.
Two go at a time. What has a line already is skipped, so the same command goes on where it stopped. A run that fails
leaves its log, and the others go on.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.record import append_record, current_commit, read_records
from longtail.evaluation.read_metrics import read_metrics
from longtail.methods import METHODS
from longtail.training.recipes import find_recipe, list_recipes

RESULTS = Path(__file__).parent / "results.jsonl"
DATA, NETWORK, EPOCHS, SEEDS = "digits-lt:100", "resnet8", 120, (10, 11, 12)
REFERENCE = "cross_entropy"
# What a method needs to take these images at all.
OF_METHOD = {"lift": ("model.name=test_vit", "image_size=16")}


class Arm(NamedTuple):
    """A method or a preset with settings beside those of its recipe."""

    recipe: str
    settings: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        """The name of the method, which a preset has in its recipe."""
        return str(find_recipe(DATA, self.recipe).get("method", {}).get("name", self.recipe))


class Job(NamedTuple):
    """An arm with a seed."""

    arm: str
    seed: int

    def __str__(self) -> str:
        return f"{self.arm}-{self.seed}"


def all_arms() -> dict[str, Arm]:
    """Cross-entropy, and all that have a default recipe: methods and presets."""
    names = [name.removeprefix("default/") for name in list_recipes() if name.startswith("default/")]
    arms = {REFERENCE: Arm("erm", ("method.loss=cross_entropy",))}
    return arms | {name: Arm(name) for name in names if name != REFERENCE}


def jobs_to_do(records: Sequence[dict[str, Any]], arms: Sequence[str], seeds: Sequence[int]) -> list[Job]:
    """Those without a record, by seed."""
    done = {(record["arm"], record["seed"]) for record in records}
    return [Job(arm, seed) for seed in seeds for arm in arms if (arm, seed) not in done]


def commands(job: Job, scratch: Path, epochs: int) -> list[list[str]]:
    """The commands of a job, the last of them the arm's; those before train the runs that its method needs."""
    arm = all_arms()[job.arm]
    needs = METHODS[arm.method].needs
    teachers = {need: scratch / f"{job}-{need}" for need in needs}
    settings = [*arm.settings, *OF_METHOD.get(arm.method, (f"model.name={NETWORK}",))]
    settings += [f"method.{need}={folder}" for need, folder in teachers.items()]
    before = [_command("erm", job.seed, epochs, folder, [f"model.name={NETWORK}"]) for folder in teachers.values()]
    return [*before, _command(arm.recipe, job.seed, epochs, scratch / str(job), settings)]


def _command(method: str, seed: int, epochs: int, out: Path, settings: Sequence[str]) -> list[str]:
    fixed = ["--from-scratch", "--workers", "0", "--seed", str(seed), "--epochs", str(epochs), "--out", str(out)]
    sets = [part for setting in settings for part in ("--set", setting)]
    return ["longtail", "train", DATA, "--method", method, *fixed, *sets]


def carry_out(job: Job, options: argparse.Namespace) -> None:
    """Run on one thread and append the record."""
    log = options.scratch / f"{job}.log"
    to_run = commands(job, options.scratch, options.epochs)
    commit, start = current_commit(), time.monotonic()
    with log.open("w") as output:
        for command in to_run:
            shutil.rmtree(command[command.index("--out") + 1], ignore_errors=True)
            module = [sys.executable, "-m", *command]
            threads = os.environ | {"OMP_NUM_THREADS": "1"}
            if subprocess.run(module, env=threads, stdout=output, stderr=output, check=False).returncode:
                print(f"{job}: failed; see {log}", flush=True)
                return
    folder = options.scratch / str(job)
    last = read_metrics(folder / "metrics.csv")[-1]
    metrics = {name.removeprefix("test/"): value for name, value in last.items() if name.startswith("test/")}
    append_record(
        options.out,
        command=" && ".join(shlex.join(command) for command in to_run),
        settings=yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8")),
        metrics=metrics | {"seconds": round(time.monotonic() - start, 1)},
        seed=job.seed,
        commit=commit,
        labels={"study": "methods_learn", "arm": job.arm, "method": all_arms()[job.arm].method},
    )
    print(f"{job}: balanced {metrics['balanced']:.3f}", flush=True)


def main() -> None:
    """Run what has no record yet."""
    parser = argparse.ArgumentParser(description="Train every method and preset on the digits.")
    parser.add_argument("--arms", nargs="+", choices=all_arms(), default=list(all_arms()))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--at-once", type=int, default=2, choices=(1, 2))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--scratch", type=Path, default=Path("runs/methods_learn"), help="for outputs and logs")
    options = parser.parse_args()
    options.scratch.mkdir(parents=True, exist_ok=True)
    todo = jobs_to_do(read_records(options.out), options.arms, options.seeds)
    with ThreadPoolExecutor(options.at_once) as pool:
        for job in [pool.submit(carry_out, job, options) for job in todo]:
            job.result()


if __name__ == "__main__":
    main()
