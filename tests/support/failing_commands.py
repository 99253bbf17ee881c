"""Commands that fail, for the tests of the command line."""

import time
from pathlib import Path


def fail() -> None:
    raise ZeroDivisionError("on purpose")


def interrupted() -> None:
    raise KeyboardInterrupt


def wait(busy: Path) -> None:
    """Hold a file until stopped."""
    try:
        busy.touch()
        time.sleep(60)
    finally:
        busy.unlink()


class _Slow:
    """Takes its time to go."""

    def __init__(self, busy: Path) -> None:
        self.busy = busy

    def __del__(self) -> None:
        self.busy.touch()
        time.sleep(0.5)


def wait_in_a_destructor(busy: Path) -> None:
    """Hold a file until stopped, at first where exceptions are swallowed."""
    try:
        slow = _Slow(busy)
        del slow
        time.sleep(60)
    finally:
        busy.unlink()
