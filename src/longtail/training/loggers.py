"""Further places for the numbers of each epoch, beside metrics.csv: TensorBoard, MLflow.

A logger is a `Callback`; `add_loggers` adds those that the settings name to the run's own.
"""

import difflib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail._errors import UsageError
from longtail._files import write_text
from longtail.training.callback import Callback

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

# metrics.csv is always written; naming it does no harm.
NAMES = ("csv", "tensorboard", "mlflow")


def add_loggers(callback: Callback, names: Sequence[str], folder: Path) -> Callback:
    """`callback`, followed by the loggers `names`, which write below `folder`.

    Raises:
        UsageError: there is no logger of a name, or it is not installed.
    """
    check_loggers(names)
    places: dict[str, Callable[[], Callback]] = {
        "tensorboard": lambda: TensorBoardLogger(folder / "tensorboard"),
        "mlflow": lambda: MLflowLogger(folder),
    }
    loggers = [make() for name, make in places.items() if name in names]
    return Callbacks([callback, *loggers]) if loggers else callback


def check_loggers(names: Sequence[str]) -> None:
    """Refuse names that are unknown or whose package is missing, before anything is trained."""
    for name in names:
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(NAMES)}"
            raise UsageError(f"there is no logger {name!r}", "", hint)
    for name, shown in (("tensorboard", "TensorBoard"), ("mlflow", "MLflow")):
        if name in names and importlib.util.find_spec(name) is None:
            raise UsageError(
                f"{shown} is not installed", "the loggers of the run name it", f"pip install 'longtail[{name}]'"
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


class MLflowLogger(Callback):
    """Writes every number of each epoch to MLflow, where MLFLOW_TRACKING_URI says, else to its store beside the runs.

    A resumed run goes on in the same MLflow run, whose id is kept in `mlflow_run`.

    Args:
        folder: of the run; its name is that of the MLflow run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._client: Any = None
        self._run = ""

    def start(self, *, epochs: int, steps: int, epoch: int) -> None:
        """Open the run."""
        from mlflow.tracking import MlflowClient

        del epochs, steps
        self._client = MlflowClient()
        kept = self.folder / "mlflow_run"
        if epoch and kept.exists():
            self._run = kept.read_text(encoding="utf-8").strip()
            return
        found = self._client.get_experiment_by_name("longtail")
        experiment = found.experiment_id if found else self._client.create_experiment("longtail")
        self._run = self._client.create_run(experiment, run_name=self.folder.name).info.run_id
        write_text(kept, self._run + "\n")

    def epoch(self, row: Mapping[str, float | None]) -> None:
        """Write the epoch's numbers."""
        for name, value in row.items():
            if self._client is not None and name != "epoch" and value is not None:
                self._client.log_metric(self._run, name, value, step=int(row["epoch"] or 0))

    def finish(self) -> None:
        """Close the run."""
        if self._client is not None:
            self._client.set_terminated(self._run)
            self._client = None


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
