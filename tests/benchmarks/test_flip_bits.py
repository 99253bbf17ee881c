"""A flip in each file; `python -m benchmarks.robustness.flip_bits` is the long version."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.robustness.flip_bits import (
    FINISHED,
    STOPPED,
    Material,
    flip_cache,
    flip_finished,
    flip_stopped,
    material,
)


@pytest.fixture(scope="module")
def found() -> Iterator[Material]:
    with material() as made:
        yield made


# A file for people, which nothing reads.
@pytest.mark.parametrize("name", sorted(set(STOPPED) - {"log.txt"}))
def test_a_flip_in_a_stopped_run_is_said_or_changes_nothing(found: Material, tmp_path: Path, name: str) -> None:
    flip = flip_stopped(name, random.Random(1), found, tmp_path)
    assert not flip.fault
    assert flip.end == {"last.ckpt": "previous", "best.ckpt": "refused", "split.csv": "refused"}.get(name, flip.end)


@pytest.mark.parametrize("name", sorted(FINISHED))
def test_a_flip_in_a_finished_run_is_said_or_changes_nothing(found: Material, tmp_path: Path, name: str) -> None:
    flip = flip_finished(name, random.Random(1), found, tmp_path)
    assert not flip.fault
    assert flip.end == {"model/model.safetensors": "refused", "predictions.csv": "refused"}.get(name, flip.end)


@pytest.mark.parametrize("seed", range(8))
def test_a_flip_in_the_cache_of_embeddings_loses_rows_and_changes_none(tmp_path: Path, seed: int) -> None:
    assert not flip_cache(random.Random(seed), tmp_path).fault
