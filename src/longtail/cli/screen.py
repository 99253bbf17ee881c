"""Progress of the commands on stderr: a moving bar on a terminal, plain lines elsewhere."""

import sys
from types import TracebackType
from typing import Self

from longtail._printable import printable, show


class Status:
    """The current step: one line that moves on a terminal, plain lines elsewhere.

    Args:
        first: the first step.
    """

    def __init__(self, first: str | None = None) -> None:
        from rich.console import Console

        self._console = Console(file=sys.stderr)
        self._status = self._console.status("")
        if first is not None:
            self.say(first)

    def say(self, message: str) -> None:
        """Show the step."""
        if self._console.is_terminal:
            from rich.markup import escape

            self._status.update(escape(printable(message)))
            self._status.start()
        else:
            show(printable(message), file=sys.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._status.stop()


class Screen:
    """A progress bar on a terminal, plain lines elsewhere. It is also the `Report` of a fetch.

    Args:
        title: what is being done.
        unit: unit of the numbers: `images`, or `bytes`, which are shown as MB.
    """

    def __init__(self, title: str, unit: str = "images") -> None:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
        from rich.table import Column

        self._console = Console(file=sys.stderr)
        counts = "{task.fields[shown]}"
        self._bar = Progress(
            SpinnerColumn(),  # turns where there is nothing to count
            # Of a long name, a narrow terminal cuts this column, and no other.
            TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
            BarColumn(bar_width=12),
            TextColumn(counts),
            TimeRemainingColumn(),
            expand=True,
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._unit = unit
        self._task = self._bar.add_task(escape(printable(title)), total=None, shown="")

    def say(self, message: str) -> None:
        """Print one line."""
        self._console.print(printable(message), markup=False, emoji=False, highlight=False, soft_wrap=True)

    def advance(self, done: int, total: int | None) -> None:
        """Move the bar."""
        shown = f"{done / 1e6:.0f} MB" if self._unit == "bytes" else f"{done:,} {self._unit}"
        # A bar that is full stands still, and what follows may take a while.
        completed = done if total is None else min(done, total - 1e-3)
        self._bar.update(self._task, completed=completed, total=total, shown=shown)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
