"""A few kills of each kind; `python -m benchmarks.robustness.kill_anywhere` is the long version."""

import random
import signal
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.robustness import life as lives
from benchmarks.robustness.kill_and_resume import SETTINGS
from benchmarks.robustness.kill_anywhere import RUNS, Trainings, command_lives
from benchmarks.robustness.life import BrokenLifeError, fork, one_thread, wait
from longtail.evaluation import read_predictions
from longtail.inference import load
from longtail.training import build_config
from longtail.training.build import open_data
from longtail.training.settings import read_config


@pytest.fixture(scope="module", autouse=True)
def threads() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    return Trainings(tmp_path_factory.mktemp("lives"), random.Random(0), kills=2)


@pytest.mark.parametrize("name", ["erm with an average", "head"])
def test_two_ranks_resume_to_the_same_bits(trainings: Trainings, name: str) -> None:
    """Each rank's own running statistics once went into the predictions, and only the first rank's were saved."""
    life = trainings.lived(name, SETTINGS | dict(RUNS[name]), 2)
    assert not life.fault


def test_all_ranks_predict_by_the_network_that_the_first_has_chosen(trainings: Trainings) -> None:
    """The others once predicted their part of the test images by the fine-tuned one, whichever was kept."""
    run, _ = trainings.reference("head, 2 ranks", SETTINGS | dict(RUNS["head"]), 2)
    found = load(run)
    kept = read_predictions(run / "predictions.csv", found.classes)
    again = found.logits(open_data(build_config(read_config(run))).test)
    assert abs(again - kept.logits).max() < 1e-4


def test_every_command_leaves_a_finished_run_as_it_was_when_it_is_killed(trainings: Trainings) -> None:
    for life in islice(command_lives(trainings.finished_run(), random.Random(0), kills=2), 4):
        assert not life.fault, life.title


def test_a_group_that_hangs_is_told_from_one_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "_WINDOW", 1.0)
    log = tmp_path / "log.txt"
    with pytest.raises(BrokenLifeError, match="hung"):
        wait([fork(lambda: time.sleep(600), log)])
    assert "test_kill_anywhere.py" in log.read_text()  # where it stood


def test_a_rank_that_fails_ends_the_others(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    assert wait([fork(lambda: time.sleep(600), log), fork(lambda: 3, log)]) == [-signal.SIGKILL, 3]
