"""Commands that fail, for the tests of the command line."""

import time
from pathlib import Path


def command() -> None:
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
