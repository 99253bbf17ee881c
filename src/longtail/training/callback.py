"""The callback of a run: the loop tells it what happens. This one does nothing."""

from collections.abc import Mapping

Row = dict[str, float | None]


class Callback:
    """Override what you need; called on the first rank alone."""

    def say(self, message: str) -> None:
        """Tell the user a sentence."""

    def progress(self, what: str, done: int, total: int) -> None:
        """Something other than steps, such as embedding, has come so far."""

    def start(self, *, epochs: int, steps: int, epoch: int) -> None:
        """The training begins, at `epoch` (from 0), with `steps` batches an epoch."""

    def step(self, *, epoch: int, batch: int, loss: float, lr: float, images: int) -> None:
        """A batch is done."""

    def epoch(self, row: Mapping[str, float | None]) -> None:
        """An epoch is done; `row` is its line of metrics.csv."""

    def stopping(self) -> None:
        """A signal asks the training to stop after this step; called within its handler, where nothing may wait."""

    def finish(self) -> None:
        """The training is over, or has stopped."""

    def results(self, metrics: Mapping[str, float | None]) -> None:
        """The run is finished: its numbers on the test images."""

    def close(self) -> None:
        """Nothing more is told, whatever has happened."""
