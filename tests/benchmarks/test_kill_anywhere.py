"""A few kills of each kind; `python -m benchmarks.robustness.kill_anywhere` is the long version."""

import random
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.robustness.kill_anywhere import (
    RUNS,
    command_lives,
    live,
    one_thread,
    training_life,
    training_lives,
    wait,
)


@pytest.fixture(scope="module", autouse=True)
def threads() -> Iterator[None]:
    with one_thread():
        yield


@pytest.mark.parametrize("name", ["erm with ema", "decoupled"])
def test_two_ranks_with_plain_batch_norms_resume_to_the_same_bits(tmp_path: Path, name: str) -> None:
    """Each rank's own running statistics once went into the predictions, and only the first rank's were saved."""
    reference, killed = (training_life(tmp_path / folder, RUNS[name], 2) for folder in ("reference", "killed"))
    start = time.monotonic()
    assert wait(reference.start(reference.shared)) == [0, 0]
    live(killed, random.Random(0), kills=2, seconds=time.monotonic() - start)
    for part in ("metrics.csv", "predictions.csv", "model/model.safetensors"):
        assert (killed.folder / part).read_bytes() == (reference.folder / part).read_bytes(), part


def test_every_command_leaves_a_finished_run_as_it_was_when_it_is_killed(tmp_path: Path) -> None:
    draw = random.Random(0)
    next(training_lives(tmp_path, draw, kills=0))
    for name, _, _, wrong in islice(command_lives(tmp_path / "reference-0", draw, kills=2), 4):
        assert not wrong, name
