"""The league: train every arm of a track, trials first, and append a line for each run.

    python -m benchmarks.studies.league.run --sets cifar100-lt --root data
    python -m benchmarks.studies.league.run --arms compound_bn ride --seeds 100
    python -m benchmarks.studies.league.run --track pretrained --root DEST     # DEST by benchmarks.studies.folders

From scratch, `--root` has the CIFAR sets; for fine-tuning it has the folders of the study of folders, whose held-out
images are a fifth of the training images of each class, drawn once, or their own `val/`.

An arm's trials go first, on held-out training images, then its seeds on the test images, by the last epoch. What has a
line is skipped and a run that was stopped is resumed, so the same command goes on where it ended. Each run is a
process of its own with one thread. A run that diverges has a line too, with no accuracy.

A line has the accuracies, in shares, the same after the logit adjustment of the strength that the trials chose, the
core-minutes, the parameters, and what was predicted for each image of the test, in the order of their classes.
"""

import argparse
import base64
import csv
import os
import resource
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from benchmarks.record import append_record, current_commit, read_records
from benchmarks.studies.compound_bn import reduced_datasets
from benchmarks.studies.league.protocol import (
    ARMS,
    SEEDS,
    STRENGTHS,
    TRACKS,
    TRIAL_SEED,
    TRIALS,
    Choice,
    next_choices,
    settings_of,
)
from longtail.data.splits import holdout_indices
from longtail.evaluation import adjust_logits, evaluate
from longtail.training import build_config, train
from longtail.training.run_folder.model import load_model
from longtail.training.run_folder.read import FinishedRun, open_run
from longtail.training.stop_request import DivergedError

RESULTS = Path(__file__).parent / "results.jsonl"


HELD_OUT = 0.2


class Job(NamedTuple):
    """One run: a trial, or with a seed of the test."""

    track: str
    set: str
    arm: str
    choice: Choice
    seed: int | None = None

    def __str__(self) -> str:
        choice = "-".join(str(part) for part in self.choice if part is not None)
        kind = f"trial-{choice}" if self.seed is None else f"seed-{self.seed}"
        return f"{self.track}-{self.set}-{self.arm}-{kind}".replace(" ", "").replace("/", "-")


def records_of(records: Sequence[dict[str, Any]], track: str, name: str, arm: str, kind: str) -> list[dict[str, Any]]:
    """The lines of an arm on a set: its trials, or its seeds."""
    wanted = (track, name, arm, kind)
    return [record for record in records if (record["track"], record["set"], record["arm"], record["kind"]) == wanted]


def trials_of(records: Sequence[dict[str, Any]], track: str, name: str, arm: str) -> dict[Choice, dict[str, Any]]:
    """The metrics of an arm's trials on a set, by what they tried."""
    found = records_of(records, track, name, arm, "trial")
    return {_choice(*record["choice"]): record["metrics"] for record in found}


def _choice(lr: float, weight_decay: float, value: Any) -> Choice:
    return Choice(lr, weight_decay, tuple(value) if isinstance(value, list) else value)


def best_trial(trials: dict[Choice, dict[str, Any]]) -> Choice:
    """The choice with the best balanced accuracy on held-out images; the first of equal ones."""
    return max(trials, key=lambda choice: float(trials[choice].get("balanced", -1)))


def next_job(records: Sequence[dict[str, Any]], track: str, name: str, arm: str, seeds: Sequence[int]) -> Job | None:
    """What an arm still lacks on a set, its trials first."""
    trials = trials_of(records, track, name, arm)
    tried = {choice: float(metrics.get("balanced", -1)) for choice, metrics in trials.items()}
    for choice in next_choices(TRACKS[track], ARMS[arm], tried):
        return Job(track, name, arm, choice)
    done = {record["seed"] for record in records_of(records, track, name, arm, "seed")}
    return next((Job(track, name, arm, best_trial(trials), seed) for seed in seeds if seed not in done), None)


def list_held_out(folder: Path) -> None:
    """Write the list FOLDER-held-out.csv beside a folder: its training images, some of which stand for the test."""
    names = sorted(place.name for place in (folder / "train").iterdir())
    images = [
        (f"train/{name}/{image.name}", k) for k, name in enumerate(names) for image in _images(folder / "train" / name)
    ]
    if (folder / "val").is_dir():
        out = [(str(image.relative_to(folder)), names.index(image.parent.name)) for image in _images(folder / "val")]
        kept = images
    else:
        parts = holdout_indices(np.array([k for _, k in images]), HELD_OUT, 0)
        kept, out = ([images[number] for number in part] for part in parts)
    with folder.with_name(f"{folder.name}-held-out.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label", "split"])
        for split, part in (("train", kept), ("test", out)):
            writer.writerows((f"{folder.name}/{path}", names[k], split) for path, k in part)


def best_strength(logits: NDArray[np.float32], target: NDArray[np.int64], run: FinishedRun) -> dict[str, float]:
    """Balanced accuracy of adjusted decisions, by strength."""
    found = {}
    for strength in STRENGTHS:
        adjusted = adjust_logits(logits, run.class_counts, strength)
        value = evaluate(adjusted, target, run.class_counts, run.classes).balanced.value
        found[f"{strength:g}"] = float(value)
    return found


def _images(folder: Path) -> list[Path]:
    """The files of a class, or of all classes of a split."""
    return sorted(file for file in folder.rglob("*") if file.is_file())


def carry_out(job: Job, options: argparse.Namespace) -> None:
    """Train in this process and append the record."""
    torch.set_num_threads(1)
    reduced_datasets.register()
    track, held_out = TRACKS[job.track], job.seed is None
    seed = TRIAL_SEED if job.seed is None else job.seed
    settings = settings_of(track, ARMS[job.arm], job.set, job.choice, held_out=held_out, seed=seed)
    place = {"root": str(options.root)}
    if job.track == "pretrained":
        list_held_out(options.root / job.set)
        place = {"data": str(options.root / settings["data"])}
    out, commit = options.scratch / str(job), current_commit()
    labels: dict[str, Any] = {"study": "league", "track": job.track, "set": job.set, "arm": job.arm}
    try:
        train(build_config(settings | place), out=out, resume=True)
        run = open_run(out)
        seen = run.predictions()
        metrics = _scores(seen.logits, seen.target, run)
        if held_out:
            metrics["balanced_by_strength"] = best_strength(seen.logits, seen.target, run)
        else:
            trial = trials_of(read_records(options.out), job.track, job.set, job.arm)[job.choice]
            strength = max(trial["balanced_by_strength"], key=trial["balanced_by_strength"].__getitem__)
            adjusted = adjust_logits(seen.logits, run.class_counts, float(strength))
            metrics |= {"strength": float(strength), "adjusted": _scores(adjusted, seen.target, run)}
            order = np.argsort(seen.target, kind="stable")
            labels |= {
                "class_counts": list(run.class_counts),
                "test_counts": np.bincount(seen.target).tolist(),
                "predicted": pack(seen.logits.argmax(1)[order]),
                "predicted_adjusted": pack(adjusted.argmax(1)[order]),
            }
        metrics["parameters"] = _parameters(out / "model")
    except DivergedError as error:
        metrics = {"diverged": error.what}
    usage = resource.getrusage(resource.RUSAGE_SELF)
    metrics["core_minutes"] = round((usage.ru_utime + usage.ru_stime) / 60, 2)
    append_record(
        options.out,
        command=f"python -m benchmarks.studies.league.run --track {job.track} --sets {job.set} --arms {job.arm}",
        settings=yaml.safe_load((out / "config.yaml").read_text(encoding="utf-8"))
        | {"root": "data", "data": settings["data"]},
        metrics=metrics,
        seed=seed,
        commit=commit,
        labels=labels | {"kind": "trial" if held_out else "seed", "choice": list(job.choice)},
    )
    print(f"{job}: balanced {metrics.get('balanced', 'diverged')}", flush=True)


def _scores(logits: NDArray[np.float32], target: NDArray[np.int64], run: FinishedRun) -> dict[str, Any]:
    found = evaluate(logits, target, run.class_counts, run.classes).metrics
    return {name: round(float(value), 5) for name, value in found.items() if value is not None}


def _parameters(model: Path) -> int:
    return sum(weights.numel() for weights in load_model(model).model.parameters())


def pack(predicted: NDArray[np.int64]) -> str:
    """Class numbers below 256 as text.

    Example:
        >>> unpack(pack(np.array([3, 0, 99]))).tolist()
        [3, 0, 99]
    """
    return base64.b64encode(zlib.compress(predicted.astype(np.uint8).tobytes(), 9)).decode()


def unpack(text: str) -> NDArray[np.int64]:
    """What `pack` made a text of."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).astype(np.int64)


def main() -> None:
    """Run what has no record yet."""
    parser = argparse.ArgumentParser(description="Train every arm of a track of the league.")
    parser.add_argument("--track", choices=TRACKS, default="scratch")
    parser.add_argument("--sets", nargs="+", help="of the track; all of them by default")
    parser.add_argument("--arms", nargs="+", choices=ARMS, help="of the track; all of them by default")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--root", type=Path, default=Path("data"), help="where the data sets or the folders are")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--scratch", type=Path, default=Path("runs/league"), help="the folder of the runs")
    parser.add_argument("--share", type=int, nargs=2, default=(0, 1), help="of the arms: the I-th of N, to run several")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    part, parts = options.share
    track = TRACKS[options.track]
    arms, sets = (options.arms or track.arms)[part::parts], options.sets or list(track.sets)
    if unknown := {*sets, *arms} - {*track.sets, *track.arms}:
        parser.error(f"track {options.track} has no {', '.join(unknown)}")
    if options.one:
        job = next_job(read_records(options.out), options.track, sets[0], arms[0], options.seeds)
        assert job is not None
        carry_out(job, options)
        return
    for name in sets:
        for arm in arms:
            for _ in range(TRIALS + len(options.seeds)):
                if next_job(read_records(options.out), options.track, name, arm, options.seeds) is None:
                    break
                given = ["--out", options.out, "--root", options.root, "--scratch", options.scratch]
                which = ["--track", options.track, "--sets", name, "--arms", arm]
                seeds = ["--seeds", *map(str, options.seeds)]
                command = ["-m", __spec__.name, *which, *seeds, *map(str, given), "--one"]
                threads = os.environ | {"OMP_NUM_THREADS": "1"}
                if subprocess.run([sys.executable, *command], env=threads, check=False).returncode:
                    print(f"{options.track} {name} {arm}: failed", flush=True)
                    break


if __name__ == "__main__":
    main()
