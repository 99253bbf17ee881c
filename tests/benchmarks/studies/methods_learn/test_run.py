"""Which runs are done, and by which commands."""

from pathlib import Path

import pytest

from benchmarks.studies.methods_learn.run import REFERENCE, Job, all_arms, commands, jobs_to_do
from longtail.methods import METHODS


def test_every_method_has_an_arm_and_so_has_cross_entropy() -> None:
    assert set(METHODS) | {REFERENCE} <= set(all_arms())


def test_jobs_go_by_seed_and_leave_out_what_has_a_record() -> None:
    records = [{"arm": "paco", "seed": 10}]
    assert jobs_to_do(records, ["paco", "ssd"], [10, 11]) == [Job("ssd", 10), Job("paco", 11), Job("ssd", 11)]


def test_a_method_that_needs_a_run_gets_one_of_its_own_seed_first(tmp_path: Path) -> None:
    teacher, student = commands(Job("dive", 11), tmp_path, 5)
    assert teacher[teacher.index("--method") + 1] == "erm"
    assert teacher[teacher.index("--seed") + 1] == student[student.index("--seed") + 1] == "11"
    assert f"method.teacher={teacher[teacher.index('--out') + 1]}" in student


@pytest.mark.parametrize("arm", all_arms())
def test_the_network_and_the_epochs_are_the_same_for_every_arm(arm: str, tmp_path: Path) -> None:
    for command in commands(Job(arm, 10), tmp_path, 7):
        assert command[command.index("--epochs") + 1] == "7"
        assert ("model.name=resnet8" in command) == (arm != "lift")


def test_cross_entropy_is_erm_with_that_loss(tmp_path: Path) -> None:
    (command,) = commands(Job(REFERENCE, 10), tmp_path, 5)
    assert command[command.index("--method") + 1] == "erm"
    assert "method.loss=cross_entropy" in command
