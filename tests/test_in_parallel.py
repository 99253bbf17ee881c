"""Threads with work of their own: the results and the errors of a plain map, and torch's threads as before."""

import threading
from collections.abc import Iterator

import pytest
import torch

from longtail._in_parallel import in_parallel


def test_gives_what_map_gives_in_the_same_order() -> None:
    matrices = [torch.full((3, 3), float(number)) for number in range(20)]
    found = list(in_parallel(lambda matrix: matrix @ matrix, iter(matrices)))
    assert all(torch.equal(one, matrix @ matrix) for one, matrix in zip(found, matrices, strict=True))


def test_each_thread_has_one_of_torch_s_and_the_caller_keeps_its_own() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert set(in_parallel(lambda _: torch.get_num_threads(), range(8))) == {1}
        assert torch.get_num_threads() == 2
        late: list[int] = []
        thread = threading.Thread(target=lambda: late.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert late == [2]
    finally:
        torch.set_num_threads(before)


def test_an_error_reaches_the_caller() -> None:
    def fail(number: int) -> int:
        if number == 3:
            raise ValueError("three")
        return number

    with pytest.raises(ValueError, match="three"):
        list(in_parallel(fail, range(100)))


def test_takes_few_items_ahead() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    results = in_parallel(lambda number: number, items())
    assert next(results) == 0
    assert len(taken) <= 2 * torch.get_num_threads() + 1
