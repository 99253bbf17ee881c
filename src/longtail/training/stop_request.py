"""Reasons to stop a run between two steps: a signal, the clock; and the errors that end one."""

import shlex
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from longtail._errors import LongtailError


class DivergedError(LongtailError):
    """The loss is not finite."""

    exit_code = 5

    @classmethod
    def at(cls, what: str, *, kept: Path | None, smaller: float) -> Self:
        """What happened where; `kept` is the folder of the last sound checkpoint, `smaller` a learning rate to try."""
        rate = f"--lr {smaller:.2g}"
        if kept is None:
            return cls(what, "there is no checkpoint yet", f"try a smaller learning rate: {rate}")
        resume = f"{shlex.join(['longtail', 'train', '--resume', str(kept)])} {rate}"
        return cls(
            what,
            f"the last checkpoint, from before it, stays in {kept}",
            f"go on with a smaller learning rate: {resume}",
        )


class StoppedError(LongtailError):
    """The run was asked to stop, has saved itself and can be resumed."""

    def __init__(self, reason: int, what: str, why: str = "", fix: str = "") -> None:
        super().__init__(what, why, fix)
        self.reason = reason
        self.exit_code = 0 if reason == TIME_IS_UP else 128 + reason

    @classmethod
    def at(cls, reason: int, place: str, folder: Path) -> Self:
        """Where the run in `folder` stopped, and the commands that finish it and go on."""
        why = "the time is up" if reason == TIME_IS_UP else "asked to stop"
        finish = shlex.join(["longtail", "finish", str(folder)])
        resume = shlex.join(["longtail", "train", "--resume", str(folder)])
        return cls(reason, f"stopped in {place}: {why}", f"use what it has learnt: {finish}", f"go on: {resume}")


TIME_IS_UP = -1


class StopRequest:
    """Watch signals and the clock; the loop asks for the `reason` after each step.

    A second signal stops at once. It comes by itself if the loop does not ask within some seconds, because it waits for
    images that never come, say.

    Args:
        max_minutes: after which `reason` says that time is up; None for never.
        told: called when the first signal comes, from within its handler.
    """

    _SIGNALS = (signal.SIGINT, signal.SIGTERM)
    SECONDS_TO_ASK = 6.0

    def __init__(self, max_minutes: float | None, told: Callable[[], None] = lambda: None) -> None:
        self._told = told
        self._deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        self._signal = 0
        self._before: dict[int, Any] = {}
        self._again: threading.Timer | None = None

    @property
    def reason(self) -> int:
        """0 to go on, the number of a signal, or `TIME_IS_UP`."""
        if self._signal:
            self._cancel()
            return self._signal
        late = self._deadline is not None and time.monotonic() > self._deadline
        return TIME_IS_UP if late else 0

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._signal:
            self._cancel()
            before = self._before[number]
            if callable(before):
                before(number, frame)
            elif before == signal.SIG_DFL:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            return
        self._signal = number
        self._told()
        if hasattr(signal, "pthread_kill"):
            main = threading.main_thread().ident
            self._again = threading.Timer(self.SECONDS_TO_ASK, signal.pthread_kill, (main, number))
            self._again.daemon = True
            self._again.start()

    def _cancel(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in self._SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cancel()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        # A signal after the last question is for whoever comes next.
        if self._signal and not isinstance(error, StoppedError | KeyboardInterrupt | SystemExit):
            signal.raise_signal(self._signal)
