"""Work through a batch in smaller pieces when memory is short, and let all ranks agree on how small.

The gradients of the pieces add up to the batch's; batch norms see a piece at a time. `optim.accumulate` is the number
to begin with. Whoever runs out of memory goes on in twice as many, at most three times in a run:

- One process tries the step again at once.
- One of several ranks cannot. The others wait for it within the step, in a sum over all ranks that it will not join.
  So it leaves a note in the run's folder and exits, and the others exit when they hear of it. At the next start (by
  torchrun's `--max-restarts`, by the queue, by hand) the first rank reads the notes and tells the others, and the run
  goes on from its last checkpoint as if it had had these pieces from there on.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from lightning.fabric import Fabric

from longtail.data.views import Batch
from longtail.training.memory_notes import note_times, read_notes, write_note
from longtail.training.run_config import RunConfig
from longtail.training.stop_request import MemoryFullError

_HALVINGS = 3
_OUT_OF_MEMORY = (torch.OutOfMemoryError, MemoryError)


class MicroBatches:
    """How many pieces a batch of this rank is worked through in.

    To be made by all ranks together, before any of them can be in a step.

    Args:
        config: the settings.
        folder: of the run.
        fabric: launched.
        say: tells the user.
    """

    def __init__(self, config: RunConfig, folder: Path, fabric: Fabric, say: Callable[[str], None]) -> None:
        self._config, self._folder, self._fabric, self._say = config, folder, fabric, say
        self._old_notes = note_times(folder)
        first, here = config.optim.accumulate, config.batch_size // fabric.world_size
        # A piece has two images or more, so that nothing comes of cutting further.
        self._most = min(first << _HALVINGS, max(first, here // 2))
        # One rank reads for all: on a shared disk, others might not see the note yet.
        self.number: int = max(first, fabric.broadcast(read_notes(folder)))
        if self.number > first:
            self._tell()

    def work(self, attempt: Callable[[], tuple[float, int]], undo: Callable[[], None]) -> tuple[float, int]:
        """Do `attempt`, again in smaller pieces where memory is short; `undo` comes before each further one."""
        while True:
            try:
                return attempt()
            except _OUT_OF_MEMORY as error:
                if self._fabric.world_size > 1:
                    write_note(self._folder, self._fabric.global_rank, self._next)
                    raise self._stop(f"rank {self._fabric.global_rank}") from error
                if self.number >= self._most:
                    raise self._stop("") from error
            except RuntimeError as error:  # of a rank that waited in vain for another
                if self._fabric.world_size > 1 and note_times(self._folder) != self._old_notes:
                    raise self._stop("another rank") from error
                raise
            undo()
            self.number = self._next
            self._tell()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    @property
    def _next(self) -> int:
        return min(2 * self.number, self._most)

    def _tell(self) -> None:
        self._say(f"out of memory: batches are now worked through in {self.number} pieces")

    def _stop(self, who: str) -> MemoryFullError:
        size = self._config.batch_size
        amount = f"with {size} images a batch{f' in {self.number} pieces' if self.number > 1 else ''}"
        what = f"{who} is out of memory {amount}" if who else f"out of memory {amount}"
        if self.number >= self._most:
            return MemoryFullError(
                what,
                "the model, its gradients and the images do not fit together",
                f"use --batch-size {max(2, size // 2)}, a smaller --image-size, or a smaller --model",
            )
        return MemoryFullError(
            what,
            "a rank that the others wait for cannot try again: all must start again, in smaller pieces",
            how_to_go_on(self._folder, self._next, os.environ),
        )


def how_to_go_on(folder: Path, pieces: int, environment: Mapping[str, str]) -> str:
    """What starts all ranks again, or who does so without being asked."""
    if "TORCHELASTIC_RUN_ID" not in environment:
        return f"go on in {pieces} pieces: longtail train --resume {folder}"
    starts, most = (int(environment.get(f"TORCHELASTIC_{name}", 0)) for name in ("RESTART_COUNT", "MAX_RESTARTS"))
    who = "torchrun starts all ranks again;" if starts < most else "start torchrun again:"
    return f"{who} with --out {folder} --resume auto they go on in {pieces} pieces"


def cut_microbatches(batch: Batch, pieces: int) -> list[Batch]:
    """The batch in pieces of at least two images: one alone has no variance to normalise by."""
    pieces = max(1, min(pieces, len(batch.target) // 2))
    if pieces == 1:
        return [batch]
    parts = zip(*(view.tensor_split(pieces) for view in batch.views), strict=True)
    targets, indices = batch.target.tensor_split(pieces), batch.indices.tensor_split(pieces)
    return [Batch(tuple(views), *rest) for views, *rest in zip(parts, targets, indices, strict=True)]
