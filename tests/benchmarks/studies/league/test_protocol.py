"""The protocol of the league: its runs are valid before hours go into them, and go on where they stopped."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.studies.league.protocol import ARMS, TRACKS, TRIALS, Choice, next_choices, settings_of
from benchmarks.studies.league.run import Job, best_trial, list_held_out, next_job, trials_of
from longtail.training import build_config
from longtail.training.build_method import build_method

RUNS = [(track, name, arm) for track, shared in TRACKS.items() for name in shared.sets for arm in shared.arms]


@pytest.mark.parametrize(("track", "name", "arm"), RUNS)
def test_each_choice_of_an_arm_can_be_trained(track: str, name: str, arm: str) -> None:
    values = (None, *ARMS[arm].values)
    for value in values:
        choice = Choice(0.05, 5e-4, value)
        settings = settings_of(TRACKS[track], ARMS[arm], name, choice, held_out=True, seed=0)
        config = build_config(settings | {"model": {"name": "resnet20", "pretrained": False}})
        build_method(config, class_counts=[9, 3, 1], in_channels=3, image_size=16)


@pytest.mark.parametrize(("track", "arm"), [(track, arm) for track in TRACKS for arm in TRACKS[track].arms])
def test_every_arm_has_as_many_trials(track: str, arm: str) -> None:
    tried: dict[Choice, float] = {}
    while waiting := next_choices(TRACKS[track], ARMS[arm], tried):
        tried[waiting[0]] = float(len(tried))
    assert len(tried) == TRIALS


def record(kind: str, choice: Choice, seed: int, balanced: float) -> dict[str, Any]:
    line = {"track": "scratch", "set": "cifar100-lt", "arm": "experts", "kind": kind, "choice": choice, "seed": seed}
    written: dict[str, Any] = json.loads(json.dumps(line | {"metrics": {"balanced": balanced}}))
    return written


def test_an_arm_goes_from_its_trials_to_its_seeds_with_the_best_choice() -> None:
    records: list[dict[str, Any]] = []
    while (job := next_job(records, "scratch", "cifar100-lt", "experts", [100, 101])) and job.seed is None:
        records.append(record("trial", job.choice, 0, 0.3 if job.choice.value == (1.0, 1.0, 1.0) else 0.2))
    best = best_trial(trials_of(records, "scratch", "cifar100-lt", "experts"))
    assert best.value == (1.0, 1.0, 1.0)
    assert job == Job("scratch", "cifar100-lt", "experts", best, 100)
    records.append(record("seed", best, 100, 0.4))
    assert next_job(records, "scratch", "cifar100-lt", "experts", [100, 101]) == Job(
        "scratch", "cifar100-lt", "experts", best, 101
    )
    assert next_job(records, "scratch", "cifar100-lt", "experts", [100]) is None


@pytest.mark.parametrize("own", [False, True], ids=["drawn", "its own"])
def test_held_out_images_of_a_folder_are_none_of_its_training_images(tmp_path: Path, own: bool) -> None:
    folder = tmp_path / "birds"
    for split, each in (("train", 10), ("val", 3), ("test", 4)):
        for name in ("jay", "owl") if own or split != "val" else ():
            (folder / split / name).mkdir(parents=True)
            for number in range(each):
                (folder / split / name / f"{number}.png").write_bytes(b"")
    list_held_out(folder)
    with (tmp_path / "birds-held-out.csv").open(encoding="utf-8") as file:
        rows = [tuple(row.values()) for row in csv.DictReader(file)]
    parts = {split: [path for path, _, other in rows if other == split] for split in ("train", "test")}
    assert not set(parts["train"]) & set(parts["test"])
    assert (len(parts["train"]), len(parts["test"])) == ((20, 6) if own else (16, 4))
    assert all((tmp_path / path).is_file() and Path(path).parent.name == label for path, label, _ in rows)
    assert {Path(path).parts[1] for path in parts["test"]} == {"val" if own else "train"}
