"""Run peers on folders with the same core-time, and append a line for each run.

    python -m benchmarks.studies.folders.run --folders DEST --out results.jsonl --seeds 0 1 2 --peers longtail fastai

Each run has one core to itself (`taskset`) and one thread; with two cores, two runs go at a time. What has a line
already is skipped, so the same command goes on where it stopped.

A line has the set, peer, seed, scores, core-seconds (all: `rusage` of the process with its children; training: the
rival's own clock, without imports and evaluation), the predictions as class numbers in the order of the test images,
and the training and test images of each class.
"""

import argparse
import csv
import json
import os
import queue
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.record import append_record, current_commit, read_records
from benchmarks.studies.folders.make_folders import MAKERS, class_sizes
from benchmarks.studies.folders.peers import PEERS, surroundings
from benchmarks.studies.folders.score import score

OWN_PACKAGES = ("longtail", "timm", "torch", "torchvision", "scikit-learn")


@dataclass(frozen=True)
class Run:
    """A peer on a set with a seed."""

    set: str
    peer: str
    seed: int

    def __str__(self) -> str:
        return f"{self.set}-{self.peer}-{self.seed}"


def runs_to_do(records: Sequence[dict[str, Any]], sets: list[str], peers: list[str], seeds: list[int]) -> list[Run]:
    """The runs without a record, by seed, then peer, then set; a deterministic peer has the first seed only."""
    done = {(r["set"], r["peer"], r["seed"]) for r in records}
    asked = [
        Run(name, peer, seed)
        for seed in seeds
        for peer in peers
        for name in sets
        if seed == seeds[0] or not PEERS[peer].deterministic
    ]
    return [run for run in asked if (run.set, run.peer, run.seed) not in done]


def read_numbers(file: Path, folder: Path) -> list[int]:
    """The predictions of a `predictions.csv` as class numbers, for the test images by class and name."""
    classes = sorted(class_sizes(folder / "train"))
    number = {name: k for k, name in enumerate(classes)}
    with file.open(newline="", encoding="utf-8") as lines:
        predicted = {Path(row["path"]).parts[-2:]: number[row["prediction"]] for row in csv.DictReader(lines)}
    images = [(name, path.name) for name in classes for path in sorted((folder / "test" / name).iterdir())]
    missing = len(set(images) - set(predicted))
    if missing or len(predicted) != len(images):
        raise ValueError(
            f"{file} must have a line for each of the {len(images)} test images of {folder}, "
            f"got {len(predicted)} lines and lacks {missing}"
        )
    return [predicted[image] for image in images]


def carry_out(run: Run, options: argparse.Namespace, cores: "queue.Queue[int]") -> None:
    """Run on a free core and append the record; a run that fails leaves its log and no record."""
    peer, folder, out = PEERS[run.peer], options.folders / run.set, options.scratch / str(run)
    cache = Path(f"{out}.cache")  # of its own: what another run embedded would be time for nothing
    for old in (out, cache):
        shutil.rmtree(old, ignore_errors=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    command = peer.command(folder, out, seed=run.seed, seconds=options.time, environments=options.environments)
    core = cores.get()
    commit = current_commit()
    try:
        variables = surroundings(peer) | {"LONGTAIL_CACHE": str(cache)}
        status, seconds = _timed(["taskset", "-c", str(core), *command], variables, Path(f"{out}.log"))
    finally:
        cores.put(core)
    if status:
        print(f"{run}: failed with status {status}; see {out}.log", flush=True)
        return
    timing = json.loads((out / "timing.json").read_text()) if peer.environment else {}
    classes = sorted(class_sizes(folder / "train"))
    counts, test = ([class_sizes(folder / split)[name] for name in classes] for split in ("train", "test"))
    predictions = read_numbers(out / "predictions.csv", folder)
    metrics = score(predictions, test, counts) | {"core_seconds": round(seconds, 1)}
    if timing:
        metrics["core_seconds_training"] = timing["core_seconds_training"]
    append_record(
        options.out,
        command=portable(shlex.join(["taskset", "-c", str(core), *command]), options),
        settings={"seconds": options.time} | timing.get("details", {}),
        metrics=metrics,
        seed=run.seed,
        commit=commit,
        labels={
            "set": run.set,
            "peer": run.peer,
            "versions": timing.get("versions") or {package: version(package) for package in OWN_PACKAGES},
            "class_counts": counts,
            "test_counts": test,
            "predictions": predictions,
        },
    )
    print(f"{run}: " + ", ".join(f"{name} {value:.3f}" for name, value in metrics.items()), flush=True)


def portable(command: str, options: argparse.Namespace) -> str:
    """A command without the folders of this machine: each becomes the name of its option.

    Example:
        >>> options = argparse.Namespace(folders=Path("/a/b"), environments=Path("/c"), scratch=Path("/d"))
        >>> portable("/c/timm/bin/python -m x /a/b/plants --out /d/y", options)
        'environments/timm/bin/python -m x folders/plants --out scratch/y'
    """
    for name in ("folders", "environments", "scratch"):
        command = command.replace(str(getattr(options, name)), name)
    return command.replace(sys.executable, "python")


def _timed(command: list[str], variables: dict[str, str], log: Path) -> tuple[int, float]:
    """Exit status and CPU seconds of a command, with those of the processes it waited for."""
    with log.open("w") as output:
        child = subprocess.Popen(command, env=os.environ | variables, stdout=output, stderr=output)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage.ru_utime + usage.ru_stime


def main() -> None:
    """Run what has no record yet."""
    parser = argparse.ArgumentParser(description="Run peers on folders with the same core-time.")
    parser.add_argument("--folders", type=Path, required=True, help="made by make_folders")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results.jsonl")
    parser.add_argument("--sets", nargs="+", choices=MAKERS, default=list(MAKERS))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--time", type=float, default=180, help="core-seconds of a run")
    parser.add_argument("--cores", nargs="+", type=int, default=[0, 1], help="at most two, one run on each")
    parser.add_argument("--environments", type=Path, default=Path("runs/environments"))
    parser.add_argument("--scratch", type=Path, default=Path("runs/folders"), help="for outputs and logs")
    options = parser.parse_args()
    if len(options.cores) > 2:
        parser.error(f"--cores must be one or two, since more runs disturb each other, got {len(options.cores)}")
    for name in ("folders", "environments", "scratch"):
        setattr(options, name, getattr(options, name).absolute())
    for peer in options.peers:  # before any run: two of them must not make one environment at once
        if environment := PEERS[peer].environment:
            environment.python(options.environments)
    cores: queue.Queue[int] = queue.Queue()
    for core in options.cores:
        cores.put(core)
    todo = runs_to_do(read_records(options.out), options.sets, options.peers, options.seeds)
    with ThreadPoolExecutor(len(options.cores)) as pool:
        for job in [pool.submit(carry_out, run, options, cores) for run in todo]:
            job.result()


if __name__ == "__main__":
    main()
