"""Cut a batch into micro-batches when memory is short, and let all ranks agree on how small they are.

The gradients of the micro-batches add up to the batch's; batch norms see one micro-batch at a time. `optim.accumulate`
is their first number. A run that is out of memory doubles it, at most three times:

- One process tries the step again at once.
- One of several ranks cannot: the others wait for it within the step, in a sum over all ranks that it will not join.
  So it leaves a note in the run's folder and exits, and the others exit when they notice. At the next start (by
  torchrun's `--max-restarts`, by the queue, by hand) the first rank reads the notes and tells the others, and the run
  goes on from its last checkpoint with that number of micro-batches.

A note is a file `microbatches.RANK` in the run's folder; the notes go when the run is over.
"""

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
from lightning_fabric import Fabric

from longtail._errors import DataError, MemoryFullError, ran_out_of_memory
from longtail._files import write_text
from longtail.data.views import Batch

T = TypeVar("T")
_DOUBLINGS = 3
_NOTE = "microbatches."


class MicroBatches:
    """The number of micro-batches that a batch of this rank is cut into.

    All ranks build it together, before any of them can be in a step.

    Args:
        batch_size: images of a batch, all ranks together.
        folder: of the run.
        fabric: launched.
        say: tells the user.
        first: their first number.
        allowed: whether the method can be trained in micro-batches.
    """

    def __init__(
        self,
        batch_size: int,
        folder: Path,
        fabric: Fabric,
        say: Callable[[str], None],
        *,
        first: int = 1,
        allowed: bool = True,
    ) -> None:
        self._batch_size, self._folder, self._fabric, self._say = batch_size, folder, fabric, say
        self._old_notes = note_times(folder)
        here = batch_size // fabric.world_size
        # A micro-batch has two images or more, so there is a largest number of them.
        self._most = min(first << _DOUBLINGS, max(first, here // 2)) if allowed else first
        # One rank reads for all: on a shared disk, others might not see the note yet.
        self.number: int = max(first, fabric.broadcast(read_notes(folder)))
        if self.number > first:
            self._tell()

    def work(self, attempt: Callable[[], T], undo: Callable[[], None]) -> T:
        """Do `attempt`, with smaller micro-batches again where memory is short; `undo` comes before each retry."""
        while True:
            try:
                return attempt()
            except (RuntimeError, MemoryError) as error:
                several = self._fabric.world_size > 1
                if not ran_out_of_memory(error):  # perhaps it waited in vain for another rank
                    if several and note_times(self._folder) != self._old_notes:
                        raise self._stop("another rank") from error
                    raise
                if several:
                    write_note(self._folder, self._fabric.global_rank, self._next)
                    raise self._stop(f"rank {self._fabric.global_rank}") from error
                if self.number >= self._most:
                    raise self._stop("") from error
            undo()
            self.number = self._next
            self._tell()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    @property
    def _next(self) -> int:
        return min(2 * self.number, self._most)

    def _tell(self) -> None:
        self._say(f"out of memory: each batch is now cut into {self.number} micro-batches")

    def _stop(self, who: str) -> MemoryFullError:
        size = self._batch_size
        amount = f"with {size} images a batch{f' in {self.number} micro-batches' if self.number > 1 else ''}"
        what = f"{who} is out of memory {amount}" if who else f"out of memory {amount}"
        if self.number >= self._most:
            return MemoryFullError(
                what,
                "the model, its gradients and the images do not fit together",
                f"use --batch-size {max(2, size // 2)}, a smaller --image-size, or a smaller --model",
            )
        return MemoryFullError(
            what,
            "the other ranks wait for this one, so all must start again, with smaller micro-batches",
            how_to_go_on(self._folder, self._next, os.environ),
        )


def how_to_go_on(folder: Path, number: int, environment: Mapping[str, str]) -> str:
    """What starts all ranks again, or who does so without being asked."""
    place = shlex.quote(str(folder))
    if "TORCHELASTIC_RUN_ID" not in environment:
        return f"go on with {number} micro-batches: longtail train --resume {place}"
    starts, most = (int(environment.get(f"TORCHELASTIC_{name}", 0)) for name in ("RESTART_COUNT", "MAX_RESTARTS"))
    who = "torchrun starts all ranks again;" if starts < most else "start torchrun again:"
    return f"{who} with --out {place} --resume auto they go on with {number} micro-batches"


def cut_microbatches(batches: tuple[Batch, ...], number: int) -> list[tuple[Batch, ...]]:
    """Cut each batch of a step into `number` micro-batches of at least two images: one alone has no variance."""
    number = max(1, min(number, *(len(batch.target) // 2 for batch in batches)))
    if number == 1:
        return [batches]
    return list(zip(*(_cut(batch, number) for batch in batches), strict=True))


def _cut(batch: Batch, number: int) -> list[Batch]:
    views = zip(*(view.tensor_split(number) for view in batch.views), strict=True)
    targets, indices = batch.target.tensor_split(number), batch.indices.tensor_split(number)
    extra = {name: tensor.tensor_split(number) for name, tensor in batch.extra.items()}
    return [
        Batch(tuple(seen), target, index, {name: parts[k] for name, parts in extra.items()})
        for k, (seen, target, index) in enumerate(zip(views, targets, indices, strict=True))
    ]


def write_note(folder: Path, rank: int, number: int) -> None:
    """Let the next start of the run in `folder` use `number` micro-batches."""
    write_text(folder / f"{_NOTE}{rank}", f"{number}\n")


def read_notes(folder: Path) -> int:
    """The largest number that any rank noted; 1 without a note."""
    found = [1]
    for note in folder.glob(f"{_NOTE}*"):
        try:
            found.append(int(note.read_text()))
        except ValueError as error:
            raise DataError(
                f"{note} must hold a number of micro-batches: {error}",
                "a rank that ran out of memory wrote it",
                "delete it to start with the checkpoint's number",
                code="broken-note",
                paths=[str(note)],
            ) from error
    return max(found)


def remove_notes(folder: Path) -> None:
    """Forget the notes: the run is over."""
    for note in folder.glob(f"{_NOTE}*"):
        note.unlink(missing_ok=True)


def note_times(folder: Path) -> dict[str, int]:
    """When each note was written; a new one, or an old one written again, changes the answer."""
    return {note.name: note.stat().st_mtime_ns for note in folder.glob(f"{_NOTE}*")}
