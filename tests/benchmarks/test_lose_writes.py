"""A few power cuts; `python -m benchmarks.robustness.lose_writes` is the long version."""

from collections.abc import Iterator

import pytest

from benchmarks.robustness.life import one_thread
from benchmarks.robustness.lose_writes import PowerCuts
from benchmarks.robustness.volatile_disk import VolatileDisk


@pytest.fixture(scope="module")
def cuts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PowerCuts]:
    with one_thread():
        yield PowerCuts(tmp_path_factory.mktemp("cuts"))


@pytest.mark.parametrize("number", range(4))
def test_a_run_comes_back_to_a_checkpoint_that_proves_itself(cuts: PowerCuts, number: int) -> None:
    assert not cuts.lose(number).fault


def test_a_writer_that_does_not_flush_is_found_out(cuts: PowerCuts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VolatileDisk, "_flush", lambda *_: None)
    assert any(cuts.lose(number).fault for number in range(4))
