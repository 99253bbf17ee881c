"""Further places for the numbers of each epoch, beside metrics.csv: TensorBoard, MLflow, Weights & Biases.

A logger is a `Callback`; `add_loggers` adds those that the settings name to the run's own.
"""

import difflib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from longtail._errors import UsageError
from longtail.training.callback import Callback
from longtail.training.logger import Logger
from longtail.training.mlflow_logger import MLflowLogger
from longtail.training.tensorboard_logger import TensorBoardLogger
from longtail.training.wandb_logger import WandbLogger, check_key

_LOGGERS: Mapping[str, type[Logger]] = {
    "tensorboard": TensorBoardLogger,
    "mlflow": MLflowLogger,
    "wandb": WandbLogger,
}
# metrics.csv is always written; naming it does no harm.
NAMES = ("csv", *_LOGGERS)


def add_loggers(callback: Callback, names: Sequence[str], folder: Path) -> Callback:
    """`callback`, followed by the loggers `names`, which write below `folder`.

    Raises:
        UsageError: there is no logger of a name, or it is not installed.
    """
    check_loggers(names)
    loggers = [kind(folder, callback.say) for name, kind in _LOGGERS.items() if name in names]
    return Callbacks([callback, *loggers]) if loggers else callback


def check_loggers(names: Sequence[str]) -> None:
    """Refuse names that are unknown or whose package is missing, before anything is trained."""
    for name in names:
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(NAMES)}"
            raise UsageError(f"there is no logger {name!r}", "", hint)
    for name, kind in _LOGGERS.items():
        if name in names and importlib.util.find_spec(name) is None:
            raise UsageError(
                f"{kind.title} is not installed", "the loggers of the run name it", f"pip install 'longtail[{name}]'"
            )
    if "wandb" in names:
        check_key()


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

    def results(self, metrics: Mapping[str, float | None]) -> None:
        """The run is finished."""
        for callback in self.callbacks:
            callback.results(metrics)

    def close(self) -> None:
        """Nothing more is told."""
        for callback in self.callbacks:
            callback.close()
