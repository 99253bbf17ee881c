"""Work on several cores by threads that compute one thing each, instead of all on one thing.

torch splits each operation over its threads and waits for the slowest, thousands of times a second. On a machine that
has other work to do, that wait costs several times the work itself. Threads with work of their own do not wait.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`map(function, items)`, in order, on as many threads as torch has, each with one of torch's.

    The caller has one of torch's threads as well until the end, so that making an item does not wait for others either.
    Few items are taken ahead, so they may be large. Modes of torch that belong to a thread, such as
    `torch.no_grad()`, are to be set by the function.

    Example:
        >>> list(in_parallel(lambda x: x * x, range(4)))
        [0, 1, 4, 9]
    """
    threads = torch.get_num_threads()
    waiting: deque[Future[Result]] = deque()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            try:
                for item in items:
                    waiting.append(pool.submit(function, item))
                    if len(waiting) > 2 * threads:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()
    finally:
        torch.set_num_threads(threads)
