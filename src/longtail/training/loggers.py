"""Further places for the numbers of each epoch, beside metrics.csv: TensorBoard.

A logger is a `Callback`; `add_loggers` adds those that the settings name to the run's own.
"""

import difflib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from longtail._errors import UsageError
from longtail.training.callback import Callback

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

# metrics.csv is always written; naming it does no harm.
NAMES = ("csv", "tensorboard")


def add_loggers(callback: Callback, names: Sequence[str], folder: Path) -> Callback:
    """`callback`, followed by the loggers `names`, which write below `folder`.

    Raises:
        UsageError: there is no logger of a name, or it is not installed.
    """
    check_loggers(names)
    loggers = [TensorBoardLogger(folder / "tensorboard")] if "tensorboard" in names else []
    return Callbacks([callback, *loggers]) if loggers else callback


def check_loggers(names: Sequence[str]) -> None:
    """Refuse names that are unknown or whose package is missing, before anything is trained."""
    for name in names:
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(NAMES)}"
            raise UsageError(f"there is no logger {name!r}", "", hint)
    if "tensorboard" in names and importlib.util.find_spec("tensorboard") is None:
        raise UsageError(
            "TensorBoard is not installed",
            "the loggers of the run name it",
            "pip install 'longtail[tensorboard]'",
        )


class TensorBoardLogger(Callback):
    """Writes every number of each epoch, many/medium/few among them, for TensorBoard.

    A resumed run goes on in the same curves: what was written of the epochs that are trained again is dropped.

    Args:
        folder: where its event files go; `tensorboard --logdir runs` shows all runs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer: SummaryWriter | None = None

    def start(self, *, epochs: int, steps: int, epoch: int) -> None:
        """Open the event file."""
        from torch.utils.tensorboard import SummaryWriter

        del epochs, steps
        self._writer = SummaryWriter(str(self.folder), purge_step=epoch + 1 if epoch else None)

    def epoch(self, row: Mapping[str, float | None]) -> None:
        """Write the epoch's numbers."""
        if self._writer is not None:
            for name, value in row.items():
                if name != "epoch" and value is not None:
                    self._writer.add_scalar(name, value, int(row["epoch"] or 0))
            self._writer.flush()

    def finish(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class Callbacks(Callback):
    """Several callbacks as one; each is told everything, in their order."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks = tuple(callbacks)

    def say(self, message: str) -> None:
        """A sentence for the user."""
        for callback in self.callbacks:
            callback.say(message)

    def progress(self, what: str, done: int, total: int) -> None:
        """Something other than steps has come so far."""
        for callback in self.callbacks:
            callback.progress(what, done, total)

    def stopping(self) -> None:
        """The training is asked to stop."""
        for callback in self.callbacks:
            callback.stopping()

    def start(self, *, epochs: int, steps: int, epoch: int) -> None:
        """The training begins."""
        for callback in self.callbacks:
            callback.start(epochs=epochs, steps=steps, epoch=epoch)

    def step(self, *, epoch: int, batch: int, loss: float, lr: float, images: int) -> None:
        """A batch is done."""
        for callback in self.callbacks:
            callback.step(epoch=epoch, batch=batch, loss=loss, lr=lr, images=images)

    def epoch(self, row: Mapping[str, float | None]) -> None:
        """An epoch is done."""
        for callback in self.callbacks:
            callback.epoch(row)

    def finish(self) -> None:
        """The training is over, or has stopped."""
        for callback in self.callbacks:
            callback.finish()
