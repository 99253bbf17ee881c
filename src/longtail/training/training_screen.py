"""The progress of a run on stderr: a bar with the epoch, the loss and the accuracies; plain lines off a terminal."""

import os
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from longtail._errors import counted
from longtail._printable import fold, printable
from longtail.training.callback import Callback
from longtail.training.duration import format_duration

_SHORT = {
    "accuracy": "all",
    "balanced": "balanced",
    "accuracy_many": "many",
    "accuracy_medium": "medium",
    "accuracy_few": "few",
}

# The time is estimated after so many steps or seconds, whichever is first. Without an accelerator a way to be faster is
# told if it is more than so many minutes.
_STEPS_TO_JUDGE, _SECONDS_TO_JUDGE, _LONG = 20, 3.0, 30
# Off a terminal, progress is a line at most this often.
_SECONDS_BETWEEN_LINES = 10.0


class TrainingScreen(Callback):
    """Shows a run on stderr."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
        from rich.table import Column

        # The other ranks of torchrun are silent.
        self.is_first_rank = os.environ.get("RANK", "0") == "0"
        self._console = Console(file=sys.stderr, quiet=not self.is_first_rank)
        self._bar = Progress(
            SpinnerColumn(),  # turns while a step takes long
            TextColumn("{task.fields[epoch]}"),
            BarColumn(bar_width=12),
            TimeRemainingColumn(),
            # A narrow terminal cuts this column, and no other. Beside it there is room for the ^C of a terminal: in a
            # full line it would break the line.
            TextColumn("{task.fields[shown]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
            TextColumn("", table_column=Column(width=1)),
            expand=True,
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal or not self.is_first_rank,
        )
        self._spinner = self._console.status("")
        self._task = self._bar.add_task("training", total=None, epoch="", shown="")
        self._epochs = self._steps = self._images = self._seen = 0
        self._since = self._first = time.monotonic()
        self._accuracies = ""
        self._waiting_for = ""
        self._began = self._told = self._since
        self._judged = self._stops = False

    def say(self, message: str) -> None:
        """Print a line; on a terminal in several where it is too long."""
        lines = fold(printable(message), self._console.width) if self._console.is_terminal else [printable(message)]
        self._console.print("\n".join(lines), markup=False, emoji=False, highlight=False, soft_wrap=True)

    def wait(self, message: str) -> None:
        """Show that something is under way, until a bar is shown or the run is over; off a terminal, a line."""
        if not self._console.is_terminal:
            if message != self._waiting_for:
                self.say(message)
            self._waiting_for = message
        elif self.is_first_rank:
            from rich.markup import escape

            self._spinner.update(escape(printable(message)))
            self._spinner.start()

    def progress(self, what: str, done: int, total: int) -> None:
        """Show the bar for something other than steps."""
        if not self._console.is_terminal:
            self._tell_progress(what, done, total)
            return
        self._spinner.stop()
        if not self._bar.live.is_started:
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total, epoch=what, shown=f"{done:,} of {total:,}")
        if done == total:
            self._bar.stop()
            self.wait("working on the results")

    def _tell_progress(self, what: str, done: int, total: int) -> None:
        """A line at the start, every ten seconds, and at the end."""
        now = time.monotonic()
        if what != self._waiting_for:
            self._waiting_for, self._began = what, now
        elif done < total and now - self._told < _SECONDS_BETWEEN_LINES:
            return
        self._told = now
        took = f" in {format_duration(now - self._began)}" if done == total and now - self._began >= 1 else ""
        self.say(f"{what} {done:,} of {total:,}{took}")
        if done == total:
            self._waiting_for = ""

    def start(self, *, epochs: int, steps: int, epoch: int) -> None:
        """Show the bar."""
        self._spinner.stop()
        self._epochs, self._steps, self._since = epochs, steps, time.monotonic()
        self._images = self._seen = 0
        self._bar.update(self._task, total=epochs * steps, completed=epoch * steps, epoch=f"epoch {epoch + 1}/{epochs}")
        self._bar.start()

    def step(self, *, epoch: int, batch: int, loss: float, lr: float, images: int) -> None:
        """Move the bar."""
        self._images += images
        self._seen += 1
        if self._seen == 1:
            self._first = time.monotonic()  # what starts the training is not counted as a step
        late = time.monotonic() - self._first > _SECONDS_TO_JUDGE
        if not self._judged and self._seen > 1 and (self._seen == _STEPS_TO_JUDGE or late):
            self._judged = True
            self._estimate(done=epoch * self._steps + batch)
        speed = self._images / max(time.monotonic() - self._since, 1e-9)
        self._bar.update(
            self._task,
            completed=epoch * self._steps + batch,
            epoch="stopping" if self._stops else f"epoch {epoch + 1}/{self._epochs}",
            shown=" ".join(filter(None, (f"loss {loss:.3f}", self._accuracies, f"{speed:.0f} img/s", f"lr {lr:.2g}"))),
        )

    def _estimate(self, *, done: int) -> None:
        """Show how long the training will take, and what would be faster if that is long for want of an accelerator."""
        each = (time.monotonic() - self._first) / (self._seen - 1)
        minutes = (self._epochs * self._steps - done) * each / 60
        import torch

        if minutes > _LONG and not torch.accelerator.is_available():
            fewer = max(1, int(self._epochs * _LONG / minutes))
            faster = f"--epochs {fewer} would take about {_LONG} minutes, and a smaller --model is faster"
            self.say(
                f"no accelerator: at the speed of the first {counted(self._seen, 'step')} this takes "
                f"{minutes / 60:.1f} hours; {faster}"
            )
        else:
            self.say(f"training takes about {format_duration(60 * minutes)}")

    def epoch(self, row: Mapping[str, float | None]) -> None:
        """Print the losses and accuracies of the epoch."""
        measured = {
            _SHORT[name.split("/")[1]]: value for name, value in row.items() if name.startswith(("val/", "test/"))
        }
        if measured:
            self._accuracies = " ".join(f"{name} {value:.1%}" for name, value in measured.items() if value is not None)
            split = next(name.split("/")[0] for name in row if name.startswith(("val/", "test/")))
            speed = self._images / max(time.monotonic() - self._since, 1e-9)
            self.say(
                f"epoch {row['epoch']:.0f}/{self._epochs}  loss {row['train/loss']:.3f}  "
                f"{split}: {self._accuracies}  {speed:.0f} img/s"
            )

    def stopping(self) -> None:
        """Say that the training stops after this step. The bar's thread draws it: a signal handler must not wait."""
        self._stops = True
        if self._console.is_terminal and self.is_first_rank:
            self._bar.update(self._task, epoch="stopping", shown="after this step; Ctrl-C again stops at once")
        elif self.is_first_rank:
            os.write(2, b"stopping after this step; Ctrl-C again stops at once\n")

    def finish(self) -> None:
        """Remove the bar."""
        self._bar.stop()
        self.wait("saving" if self._stops else "working on the results")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spinner.stop()
        self._bar.stop()
