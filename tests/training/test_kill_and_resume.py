"""Real processes, really killed; the long version is `python -m benchmarks.robustness.kill_and_resume`.

Its `--methods all --kills 10` does to every method and preset what is done to two here.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

from benchmarks.robustness.kill_and_resume import (
    SETTINGS,
    differences,
    finish,
    fork_run,
    kill_and_resume,
    kill_often,
    method_settings,
    place_of,
    reference_run,
)
from longtail._errors import DataError
from longtail.training import Callback, build_config, train
from longtail.training.checkpoint import load_checkpoint


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, float]]:
    threads = torch.get_num_threads()
    with reference_run(tmp_path_factory.mktemp("kills")) as found:
        yield found
    torch.set_num_threads(threads)


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_run_resumes_to_the_same_bits(reference: tuple[Path, float], tmp_path: Path, seed: int) -> None:
    folder, seconds = reference
    after = random.Random(seed).uniform(0.2, 0.9) * seconds
    kill_and_resume(tmp_path / "run", after=after)
    assert differences(folder, tmp_path / "run") == []


# Stages, a queue and several networks; mixing and batch norms that shift.
@pytest.mark.parametrize("name", ["ssd", "mislas"])
def test_a_killed_run_of_a_method_resumes_to_the_same_bits(name: str) -> None:
    threads = torch.get_num_threads()
    metrics = kill_often(method_settings(name, epochs=3), 1, random.Random(3))
    torch.set_num_threads(threads)
    assert metrics["broken"] == []
    assert sum(metrics["found_in"].values()) == metrics["killed_alive"] == 1


@pytest.mark.parametrize(
    ("epoch", "place"),
    [(None, "before the first checkpoint"), (3, "stage 1"), (4, "stage 2"), (6, "after the training")],
)
def test_a_kill_is_counted_in_the_stage_of_its_last_checkpoint(epoch: int | None, place: str) -> None:
    assert place_of(epoch, [0, 4, 6]) == place


@pytest.mark.parametrize("moment", ["before the renaming", "after the renaming"])
def test_a_kill_within_the_writing_of_a_checkpoint_loses_nothing(
    reference: tuple[Path, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    replace = Path.replace
    left = 3

    def die(self: Path, target: Path) -> Path:
        nonlocal left
        left -= Path(target).name == "last.ckpt"
        if left == 0 and moment == "before the renaming":
            os.kill(os.getpid(), signal.SIGKILL)
        done = replace(self, target)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", die)
        child = fork_run(tmp_path / "run")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    finish(fork_run(tmp_path / "run"))
    assert differences(reference[0], tmp_path / "run") == []


class KillWorker(Callback):
    """Kills the loader's workers once, after the second step."""

    def __init__(self) -> None:
        self.steps, self.said = 0, ""

    def say(self, message: str) -> None:
        self.said += message

    def step(self, **_: object) -> None:
        self.steps += 1
        if self.steps == 2:
            for child in psutil.Process().children():
                child.kill()


def test_a_worker_that_dies_is_replaced_and_no_batch_is_lost(reference: tuple[Path, float], tmp_path: Path) -> None:
    callback = KillWorker()
    train(build_config(SETTINGS | {"workers": 1}), out=tmp_path / "run", callback=callback)
    assert "a worker died" in callback.said
    assert differences(reference[0], tmp_path / "run") == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small disk takes root's rights")
    yield place
    time.sleep(0.1)
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_stops_the_run_and_leaves_the_checkpoint_before(small_disk: Path) -> None:
    # One checkpoint of this network takes 0.6 MB: two fit on the disk, a third beside them does not.
    with pytest.raises(DataError, match="No space left on device") as caught:
        train(build_config(SETTINGS | {"method": {"name": "erm"}}), out=small_disk / "run")
    assert caught.value.exit_code == 3
    state, _ = load_checkpoint(small_disk / "run")
    assert state["progress"]["step"] == 2
