"""The loader: the batches of an epoch, the same for any number of workers and ranks, resumable at any batch.

A worker gets a key, (epoch, images), and returns a batch that is a pure function of it. So nothing depends on
which worker made a batch, `set_epoch` reaches persistent workers, and resuming needs two numbers: the epoch and
how many of its batches were seen. Which images a batch has is decided in `batch_plan`.
"""

import signal
import threading
from collections.abc import Iterator, Sequence
from typing import TypeVar

import torch
from torch.utils.data import DataLoader

from longtail.data.batch_plan import BatchPlan, Last
from longtail.data.images import ImageDataset
from longtail.data.preprocessing import Preprocessing
from longtail.data.samplers import SAMPLERS, EpochSampler, SequentialSampler
from longtail.data.views import Batch, ViewedImages

T = TypeVar("T")

# Workers that die (killed for their memory, say) are started anew, at most this often in a row.
WORKER_LIVES = 3


class Loader:
    """Iterate over this rank's batches of the sampler's epoch.

    A new loader that loads the `state_dict` taken after a batch goes on with the next batch, bit for bit the same,
    also with another number of workers or ranks. One loop over it at a time.

    Args:
        images: the data set through its views.
        sampler: the order of the images, and the rank of this process.
        batch_size: the number of images in a batch, over all ranks.
        workers: the number of processes that make batches; 0 makes them in this one.
        last: what to do with images that do not fill a batch; see `batch_plan`.
        pin_memory: whether batches are in pinned memory, from which an accelerator copies faster.
        lives: how often in a row workers that die are replaced, without losing a batch.
    """

    def __init__(
        self,
        images: ViewedImages,
        sampler: EpochSampler,
        *,
        batch_size: int,
        workers: int = 0,
        last: Last = "drop",
        pin_memory: bool = False,
        lives: int = 0,
    ) -> None:
        if len(images) != len(sampler.targets):
            raise ValueError(f"sampler must have one label per image, {len(images)}, got {len(sampler.targets)}")
        if workers < 0:
            raise ValueError(f"workers must be 0 or more, got {workers}")
        self.images, self.sampler = images, sampler
        self._plan = BatchPlan(sampler, batch_size=batch_size, last=last)
        self._resumed = (0, 0)  # an epoch, and how many of its batches were seen before
        self._seen = 0
        self._workers, self._pin_memory, self._lives = workers, pin_memory, lives
        self._start_workers()

    def _start_workers(self) -> None:
        self._loader: DataLoader[Batch] = DataLoader(
            self.images,
            batch_size=None,
            # The plan, not this object: in a reference cycle the workers would be stopped out of order, which
            # takes five seconds.
            sampler=self._plan,
            num_workers=self._workers,
            collate_fn=_as_it_is,
            pin_memory=self._pin_memory,
            persistent_workers=self._workers > 0,
            # Its own generator: the loader draws a seed for its workers at each epoch. From the global generator,
            # that would change what the model draws after a restart.
            generator=torch.Generator(),
        )

    def __len__(self) -> int:
        """The number of batches in a whole epoch, also when part of it was seen before."""
        return len(self._plan)

    def __iter__(self) -> Iterator[Batch]:
        epoch, seen = self._resumed
        self._resumed = (0, 0)
        self._plan.start = self._seen = seen if epoch == self.sampler.epoch else 0
        lives = self._lives
        while True:
            try:
                for batch in self._loader:
                    ignore_sigchld()
                    # Counted before it is yielded: a state that is saved during the step counts its batch as seen.
                    self._seen += 1
                    lives = self._lives
                    yield batch
                return
            except (RuntimeError, OSError, EOFError):  # torch's own, or that of a broken pipe
                if not self._loader.num_workers or not lives:
                    raise
            lives -= 1
            self._plan.start = self._seen
            self._start_workers()

    def set_epoch(self, epoch: int) -> None:
        """Go to `epoch`. It begins at its first batch, unless it is the one that `load_state_dict` named."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, int]:
        """The position: the epoch, the number of its batches that were seen, and what these depend on."""
        return {"epoch": self.sampler.epoch, "batch": self._seen} | self._identity()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue after the last batch that `state` has seen."""
        for name, value in self._identity().items():
            if state[name] != value:
                raise ValueError(f"{name} must be {state[name]} as in the run that is resumed, got {value}")
        self.set_epoch(state["epoch"])
        self._resumed = (state["epoch"], state["batch"])
        self._seen = state["batch"]

    def _identity(self) -> dict[str, int]:
        return {
            "seed": self.sampler.seed,
            "batch_size": self._plan.batch_size,
            "num_samples": self.sampler.num_samples,
        }


def train_loader(
    images: ImageDataset,
    preprocessing: Preprocessing,
    *,
    batch_size: int,
    views: Sequence[str] = ("weak",),
    sampler: str = "instance",
    seed: int = 0,
    epochs: int | None = None,
    workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
    last: Last = "drop",
    pin_memory: bool = False,
) -> Loader:
    """Batches to train on.

    Args:
        images: the training images.
        preprocessing: their size, normalisation and augmentation.
        batch_size: the number of images in a batch, over all ranks.
        views: the views of each image, names in `VIEWS`, in the order in which the batch has them.
        sampler: a name in `SAMPLERS`.
        seed: the seed of the order and of the augmentation.
        epochs: the length of the training, for the progressive sampler.
        workers: the number of processes that make batches; 0 makes them in this one.
        rank: the rank of this process.
        world_size: the number of ranks.
        last: what to do with images that do not fill a batch; see `batch_plan`.
        pin_memory: whether batches are in pinned memory, from which an accelerator copies faster.

    Example:
        >>> from longtail.data import open_dataset
        >>> from longtail.data.preprocessing import preprocessing_of
        >>> data = open_dataset("digits-lt:10")
        >>> views = ("weak", "strong")
        >>> loader = train_loader(data.train, preprocessing_of(data), batch_size=64, views=views)
        >>> loader.set_epoch(0)
        >>> batch = next(iter(loader))
        >>> [tuple(view.shape) for view in batch.views], len(loader)
        ([(64, 1, 8, 8), (64, 1, 8, 8)], 7)
    """
    seen = ViewedImages(
        images,
        [preprocessing.training_view(view) for view in views],
        mean=preprocessing.mean,
        std=preprocessing.std,
        seed=seed,
    )
    order = SAMPLERS[sampler](images.targets, seed=seed, rank=rank, world_size=world_size, epochs=epochs)
    return Loader(seen, order, batch_size=batch_size, workers=workers, last=last, pin_memory=pin_memory)


def eval_loader(
    images: ImageDataset,
    preprocessing: Preprocessing,
    *,
    batch_size: int,
    workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
    pin_memory: bool = False,
) -> Loader:
    """Batches to evaluate on: each image exactly once over all ranks, in order, with nothing random."""
    seen = ViewedImages(images, [preprocessing.evaluation()], mean=preprocessing.mean, std=preprocessing.std)
    order = SequentialSampler(images.targets, rank=rank, world_size=world_size)
    return Loader(
        seen, order, batch_size=batch_size, workers=workers, last="every", pin_memory=pin_memory, lives=WORKER_LIVES
    )


def _as_it_is(batch: T) -> T:
    return batch


def ignore_sigchld() -> None:
    """Let only the loader report that one of its workers died, between steps.

    torch's loaders install a handler that raises wherever the main thread happens to be when a worker dies: within a
    step, too, when half of the weights have changed. Without it the loader notices within five seconds.
    """
    if hasattr(signal, "SIGCHLD") and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
