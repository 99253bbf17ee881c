"""End the process soon after Ctrl-C or SIGTERM, whatever it waits for.

A signal's handler runs between two instructions of Python. A process that waits in a library, for another rank or for
a disk that is gone never gets there. So a thread hears of the signal too, by a pipe that the system itself writes to.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from typing import NoReturn

SECONDS = 9.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def end_in_time(seconds: float = SECONDS) -> None:
    """From now on, end this process `seconds` after the first Ctrl-C or SIGTERM, unless it has ended by then."""
    if os.name != "posix":
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=_leave_to_parent)
    threading.Thread(target=_watch, args=(reader, seconds), daemon=True).start()


def _leave_to_parent() -> None:
    """A signal to a worker is none to its parent, whose pipe it has inherited."""
    signal.set_wakeup_fd(-1)


def _watch(reader: int, seconds: float) -> None:
    while True:
        number = os.read(reader, 1)[0]
        if number in _SIGNALS:
            time.sleep(seconds)
            _end(number)


def _end(number: int) -> None:
    try:
        os.write(2, f"longtail: ended {SECONDS:.0f} s after it was asked to, without saving\n".encode())
    finally:
        leave(128 + number)


def leave(code: int) -> NoReturn:
    """End this process and its workers now: all has been cleaned up, and Python would wait for other threads."""
    try:
        for worker in multiprocessing.active_children():
            worker.kill()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(code)
