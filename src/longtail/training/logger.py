"""What loggers have in common: `Logger` turns what the loop tells into numbers at a step, and outlives its service."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from longtail.training.callback import Callback
from longtail.training.settings import read_config


class Logger(Callback):
    """Sends the numbers of a run to one place. A subclass opens it, writes to it and closes it.

    Args:
        folder: of the run; its name is that of the run there.
        say: tells the user a sentence.
    """

    # What its users call it.
    title: str

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.folder, self.say_to_user = folder, say
        self._is_open = self._is_done = self._is_lost = False
        self._step = 0

    @abstractmethod
    def open(self, *, epoch: int) -> None:
        """Begin, or go on with what an earlier process of the run wrote; its next epoch is `epoch`, from 0."""

    @abstractmethod
    def write(self, numbers: Mapping[str, float], step: int) -> None:
        """Write numbers of an epoch, counted from 1."""

    @abstractmethod
    def shut(self, *, done: bool) -> None:
        """End; `done` unless the run has stopped before its results."""

    def settings(self) -> dict[str, Any]:
        """The settings of the run, `optim.lr` and so on."""
        return dict(_flat(read_config(self.folder))) if (self.folder / "config.yaml").exists() else {}

    def start(self, *, epochs: int, steps: int, epoch: int) -> None:
        """The training begins."""
        del epochs, steps
        self._begin(epoch)

    def epoch(self, row: Mapping[str, float | None]) -> None:
        """Write the numbers of an epoch."""
        self._step = int(row["epoch"] or 0)
        self._write({name: value for name, value in row.items() if name != "epoch" and value is not None})

    def results(self, metrics: Mapping[str, float | None]) -> None:
        """Write the results of the run as `final/balanced` and so on; a head on frozen features has no epochs."""
        if not self._is_open and not self._is_lost:
            self._try(lambda: self._begin(self._step))
        self._write({f"final/{name}": value for name, value in metrics.items() if value is not None})
        self._is_done = True

    def close(self) -> None:
        """End."""
        if self._is_open:
            self._is_open = False
            self._try(lambda: self.shut(done=self._is_done))

    def _begin(self, epoch: int) -> None:
        self.open(epoch=epoch)
        self._is_open = True

    def _write(self, numbers: Mapping[str, float]) -> None:
        if self._is_open:
            self._try(lambda: self.write(numbers, self._step))

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # each service has errors of its own, and none is worth a training
            self._is_open, self._is_lost = False, True
            first = (str(error).splitlines() or [type(error).__name__])[0]
            self.say_to_user(f"{self.title} gets no more numbers ({first}); metrics.csv has all of them")


def _flat(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found = []
    for name, value in settings.items():
        found += _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else [(prefix + name, value)]
    return found
