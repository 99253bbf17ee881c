"""The batches of each step: one from each sampler of the method, in order, through whatever dies meanwhile."""

from collections.abc import Callable, Iterator

from longtail.data.loader import WORKER_LIVES, Loader, ignore_sigchld
from longtail.data.views import Batch
from longtail.training.batch_mixing import BatchMixing
from longtail.training.build import Parts, training_loader
from longtail.training.ranks import Ranks


class StepBatches:
    """Loaders for the samplers of the method, kept from epoch to epoch, and their workers with them.

    Args:
        parts: data and method.
        ranks: the processes that share each batch.
        say: tells the user.
    """

    def __init__(self, parts: Parts, ranks: Ranks, say: Callable[[str], None]) -> None:
        self._parts, self._ranks, self._say = parts, ranks, say
        config = parts.config
        self._mixing = (
            None if config.mixing is None else BatchMixing(config.mixing, parts.method.class_counts, config.seed)
        )
        self._names: tuple[str, ...] = ()
        self._loaders: list[Loader] = []

    def steps(self) -> int:
        """The steps of an epoch with the method's present samplers."""
        return len(self._current()[0])

    def of_epoch(self, epoch: int, done: Callable[[], int]) -> Iterator[tuple[Batch, ...]]:
        """The batches of `epoch` after the first `done()` steps; a worker that dies is replaced without losing any."""
        lives = WORKER_LIVES
        while True:
            start = done()
            loaders = self._current()
            for loader in loaders:
                loader.load_state_dict(loader.state_dict() | {"epoch": epoch, "batch": start})
            try:
                for step, batches in enumerate(zip(*loaders, strict=False), start):
                    ignore_sigchld()
                    mixed = self._mixing and self._mixing(batches, epoch, step, self._ranks.rank)
                    yield mixed or batches
                return
            except (RuntimeError, OSError, EOFError) as error:  # torch's own, or that of a broken pipe
                if not self._parts.config.workers or not lives:
                    raise
                lives = lives - 1 if done() == start else WORKER_LIVES
                first_line = str(error).partition("\n")[0] or type(error).__name__
                self._say(f"a worker died ({first_line}); starting it again")
                self.close()

    def close(self) -> None:
        """Stop the workers. Left to the garbage collector, they may be stopped from a worker of another loader."""
        self._names, self._loaders = (), []

    def _current(self) -> list[Loader]:
        names = self._parts.method.samplers + (self._mixing.samplers if self._mixing else ())
        if self._names != names:
            self.close()
            self._names = names
            self._loaders = [
                training_loader(self._parts, number, sampler=name, rank=self._ranks.rank, world_size=self._ranks.size)
                for number, name in enumerate(names)
            ]
        return self._loaders
