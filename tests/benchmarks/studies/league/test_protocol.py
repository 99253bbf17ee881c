"""The protocol of the league: its runs are valid before hours go into them, and go on where they stopped."""

import json
from typing import Any

import pytest

from benchmarks.studies.league.protocol import ARMS, EPOCHS, SETS, TRIALS, Choice, next_choices, settings_of
from benchmarks.studies.league.run import Job, best_trial, next_job, trials_of
from longtail.training import build_config
from longtail.training.build_method import build_method


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("arm", ARMS)
def test_each_choice_of_an_arm_can_be_trained(name: str, arm: str) -> None:
    values = (None, *ARMS[arm].values)
    for value in values:
        settings = settings_of(ARMS[arm], name, Choice(0.05, 5e-4, value), held_out=True, epochs=EPOCHS, seed=0)
        build_method(build_config(settings), class_counts=[9, 3, 1], in_channels=3, image_size=16)


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_has_as_many_trials(arm: str) -> None:
    tried: dict[Choice, float] = {}
    while waiting := next_choices(ARMS[arm], tried):
        tried[waiting[0]] = float(len(tried))
    assert len(tried) == TRIALS


def record(kind: str, choice: Choice, seed: int, balanced: float) -> dict[str, Any]:
    line = {"set": "cifar100-lt", "arm": "experts", "kind": kind, "choice": choice, "seed": seed}
    written: dict[str, Any] = json.loads(json.dumps(line | {"metrics": {"balanced": balanced}}))
    return written


def test_an_arm_goes_from_its_trials_to_its_seeds_with_the_best_choice() -> None:
    records: list[dict[str, Any]] = []
    while (job := next_job(records, "cifar100-lt", "experts", [100, 101])) and job.seed is None:
        records.append(record("trial", job.choice, 0, 0.3 if job.choice.value == (1.0, 1.0, 1.0) else 0.2))
    best = best_trial(trials_of(records, "cifar100-lt", "experts"))
    assert best.value == (1.0, 1.0, 1.0)
    assert job == Job("cifar100-lt", "experts", best, 100)
    records.append(record("seed", best, 100, 0.4))
    assert next_job(records, "cifar100-lt", "experts", [100, 101]) == Job("cifar100-lt", "experts", best, 101)
    assert next_job(records, "cifar100-lt", "experts", [100]) is None
