"""The training loop: plain, exact, and the same on one device or many.

Lightning's Fabric places the model and the batches, casts precisions and averages gradients over the ranks;
the loop itself is written out here, because what a run promises lies in it:

- **Exact resuming.** A batch is a function of (seed, epoch, number), torch's generator is seeded from the
  position before each step, and a checkpoint holds weights, optimiser, position and the sums of the epoch.
  So a run that was killed and resumed goes through the same states as one that was not.
- **Stopping between steps.** Signals and the clock only set a flag. After each step all ranks agree on it,
  save and leave.
- **Nothing bad is kept.** The loss is looked at before the weights change. If it is no number, the run stops
  at that step, and the last checkpoint is the one before.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn

from longtail.data.images import ImageDataset
from longtail.data.loader import Loader
from longtail.data.views import Batch
from longtail.evaluation.confusion_matrix import confusion_matrix, mean_over_support, recall_per_class
from longtail.methods import Method, MethodOutput
from longtail.training.build import Parts, evaluation_loader, training_loader, workers_for
from longtail.training.callback import Callback, Row
from longtail.training.checkpoint import Checkpoint, save_checkpoint
from longtail.training.microbatches import MicroBatches, cut_microbatches
from longtail.training.mixture import mixture_row, record_due, record_mixture
from longtail.training.optimizer import build_average, build_optimizer, learning_rate, reseed, set_learning_rate
from longtail.training.run_config import RunConfig
from longtail.training.run_folder.write import RunFolder
from longtail.training.stop_request import (
    TIME_IS_UP,
    DivergedError,
    StoppedError,
    StopRequest,
    hear_of_workers_here_alone,
)

# Workers that die (killed for their memory, say) are started anew, at most this often in a row.
_WORKER_LIVES = 3


@dataclass
class Progress:
    """Where the training stands, the sums of the epoch under way, and what is known of those before."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    correct: int = 0
    images: int = 0
    rows: list[Row] = field(default_factory=list)
    mixtures: list[str] = field(default_factory=list)


class TrainingLoop:
    """One training, from the first or from any later step to the last.

    Args:
        config: the settings.
        parts: data and method.
        folder: where checkpoints and metrics go.
        fabric: launched.
        callback: is told what happens, on the first rank.
    """

    def __init__(self, config: RunConfig, parts: Parts, folder: RunFolder, fabric: Fabric, callback: Callback) -> None:
        self.config, self.parts, self.folder, self.fabric, self.callback = config, parts, folder, fabric, callback
        self.progress = Progress()
        self.method: Method = parts.method
        if config.compile:
            self.method.model.compile()
        self._pieces = MicroBatches(config, folder.path, fabric, self._say)
        optimizer = build_optimizer(self.method, config.optim)
        self._module, self._optimizer = fabric.setup(self.method, optimizer)
        self._average = build_average(self.method.model, config.optim.ema)
        self._saved_at = time.monotonic()
        self._kept: tuple[str, Loader] | None = None

    def run(self) -> None:
        """Train to the end, or raise `StoppedError`, `DivergedError` or `MemoryFullError`."""
        try:
            self._run()
        finally:
            # Its workers with it: those that wait for the garbage collector may meet it in a worker of another loader.
            self._kept = None

    def _run(self) -> None:
        first = True
        with StopRequest(self.config.max_time) as request:
            for epoch in range(self.progress.epoch, self.config.epochs):
                self._module.train()
                self.method.set_progress(epoch / self.config.epochs)
                loader = self._loader()
                loader.set_epoch(epoch)
                if first and self._is_first_rank:
                    self.callback.start(epochs=self.config.epochs, steps=len(loader), epoch=epoch)
                first = False
                for batch in self._batches(loader):
                    self._one_step(batch, steps=len(loader))
                    self._stop_if_asked(request)
                    self._save_if_due()
                self._end_epoch()
                self._stop_if_asked(request, between_epochs=True)
        if self._is_first_rank:
            self.callback.finish()

    # Steps

    def _one_step(self, batch: Batch, steps: int) -> None:
        """One update of the weights."""
        progress = self.progress
        # The middle of the step in the whole training: a position, so that nothing depends on the past.
        position = (progress.epoch + progress.batch / steps) / self.config.epochs
        lr = learning_rate(
            self.config.optim, position=self.method.schedule_position(position), epochs=self.config.epochs
        )
        set_learning_rate(self._optimizer, lr)
        batch = self.fabric.to_device(batch)
        loss, correct = self._pieces.work(lambda: self._backward(batch), undo=self._optimizer.zero_grad)
        if not self._all_finite(loss):
            raise DivergedError(
                f"the loss is {loss} in epoch {progress.epoch + 1}, step {progress.batch + 1}, learning rate {lr:.3g}",
                f"the last checkpoint, from before it, stays in {self.folder.path}",
                f"try a smaller learning rate, such as --lr {self.config.optim.lr / 3:.2g}",
            )
        if self.config.optim.clip_norm is not None:
            self.fabric.clip_gradients(self._module, self._optimizer, max_norm=self.config.optim.clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()
        if self._average is not None:
            self._average.update_parameters(self.method.model)
        images = len(batch.target)
        progress.loss_sum += loss * images
        progress.correct += correct
        progress.images += images
        progress.batch += 1
        progress.step += 1
        if self._is_first_rank:
            self.callback.step(epoch=progress.epoch, batch=progress.batch, loss=loss, lr=lr, images=images)

    def _backward(self, batch: Batch) -> tuple[float, int]:
        """The gradient of the batch, piece by piece; its loss and how many predictions were right."""
        reseed(self.config.seed, 1, self.progress.epoch, self.progress.batch, self.fabric.global_rank)
        total, correct, images = 0.0, 0, len(batch.target)
        pieces = cut_microbatches(batch, self._pieces.number)
        for number, piece in enumerate(pieces, start=1):
            with self.fabric.no_backward_sync(self._module, enabled=number < len(pieces)):
                output: MethodOutput = self._module(piece)
                share = len(piece.target) / images
                self.fabric.backward(output.loss * share)
            total += float(output.loss.detach()) * share
            correct += int((output.logits.argmax(1) == piece.target).sum())
        return total, correct

    def _all_finite(self, loss: float) -> bool:
        return not self._any_rank(not math.isfinite(loss))

    # Epochs

    def _loader(self, *, anew: bool = False) -> Loader:
        """The loader of the method's present sampler; kept from epoch to epoch, and its workers with it."""
        sampler = self.method.sampler
        if anew or self._kept is None or self._kept[0] != sampler:
            rank, world_size = self.fabric.global_rank, self.fabric.world_size
            loader = training_loader(self.config, self.parts, sampler=sampler, rank=rank, world_size=world_size)
            self._kept = (sampler, loader)
        return self._kept[1]

    def _batches(self, loader: Loader) -> Iterator[Batch]:
        """The rest of the epoch's batches; a worker that dies is replaced without losing any."""
        lives = _WORKER_LIVES
        while True:
            start = self.progress.batch
            loader.load_state_dict(loader.state_dict() | {"epoch": self.progress.epoch, "batch": start})
            try:
                for batch in loader:
                    hear_of_workers_here_alone()
                    yield batch
                return
            except (RuntimeError, OSError, EOFError) as error:  # said by torch, or by a pipe that broke
                if not workers_for(self.config, self.parts.data.train) or not lives:
                    raise
                lives = lives - 1 if self.progress.batch == start else _WORKER_LIVES
                first_line = str(error).partition("\n")[0] or type(error).__name__
                self._say(f"a worker died ({first_line}); starting it again")
                loader = self._loader(anew=True)

    def _end_epoch(self) -> None:
        """Evaluate if it is time, write the epoch's line, and save."""
        progress, config = self.progress, self.config
        loss_sum, correct, images = self._epoch_sums()
        row: Row = {
            "epoch": progress.epoch + 1,
            "train/loss": loss_sum / images,
            "train/accuracy": correct / images,
            "lr": self._optimizer.param_groups[0]["lr"],
        }
        every = config.eval_every or max(1, config.epochs // 20)
        last = progress.epoch + 1 == config.epochs
        # Without a validation split the test split is watched; nothing is ever chosen by it.
        split = "val" if len(self.parts.data.val) else "test"
        if last or (progress.epoch + 1) % every == 0:
            row |= self._measure(self.parts.data.val if split == "val" else self.parts.data.test, split)
            row |= mixture_row(self.evaluated_model)
            if self._is_first_rank and record_due(progress.epoch + 1, epochs=config.epochs, every=every):
                model, device = self.evaluated_model, self.fabric.device
                progress.mixtures += record_mixture(model, self.parts, device, epoch=progress.epoch + 1)
        progress.rows.append(row)
        progress.epoch, progress.batch = progress.epoch + 1, 0
        progress.loss_sum, progress.correct, progress.images = 0.0, 0, 0
        if self._is_first_rank:
            self.folder.write_metrics(progress.rows)
            self.callback.epoch(row)
        self.save()

    def _measure(self, images: ImageDataset, split: str) -> Row:
        logits, targets = self.predict(images)
        confusion = confusion_matrix(targets, logits.argmax(1), len(self.parts.data.classes))
        recall = recall_per_class(confusion)
        row: Row = {
            f"{split}/accuracy": float(np.trace(confusion) / confusion.sum()),
            f"{split}/balanced": mean_over_support(recall),
        }
        for group, classes in self.parts.data.class_counts.groups().items():
            row[f"{split}/accuracy_{group}"] = mean_over_support(recall[classes])
        return row

    @torch.no_grad()
    def predict(self, images: ImageDataset) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The logits of all images, in order and each once, on every rank; and their labels."""
        rank, world_size = self.fabric.global_rank, self.fabric.world_size
        loader = evaluation_loader(self.config, self.parts, images, rank=rank, world_size=world_size)
        loader.set_epoch(0)
        model = self.evaluated_model
        model.eval()
        mine: dict[int, NDArray[np.float32]] = {}
        for batch in loader:
            with self.fabric.autocast():
                logits: Tensor = model(self.fabric.to_device(batch.views[0]))
            mine |= dict(zip(batch.indices.tolist(), logits.float().cpu().numpy(), strict=True))
        everybody: list[Any] = [mine]
        if world_size > 1:
            everybody = [None] * world_size
            dist.all_gather_object(everybody, mine)
        found = {index: row for part in everybody for index, row in part.items()}
        return np.stack([found[index] for index in range(len(images))]), images.targets

    @property
    def evaluated_model(self) -> nn.Module:
        """The model whose numbers count: the average, if there is one."""
        return self.method.model if self._average is None else self._average.module

    # State

    def save(self) -> None:
        """Write the checkpoint."""
        self._saved_at = time.monotonic()
        state = self.state()
        if self._is_first_rank:
            save_checkpoint(self.folder.path, state)
        self.fabric.barrier()

    def state(self) -> Checkpoint:
        """All that the rest of the training depends on."""
        progress = self.progress
        loss_sum, correct, images = self._epoch_sums()
        sums = {"loss_sum": loss_sum, "correct": int(correct), "images": int(images)}
        return {
            "classes": list(self.parts.data.classes),
            "config": self.config.as_dict(),
            "progress": {
                **vars(progress),
                **sums,
                "rows": [dict(row) for row in progress.rows],
                "mixtures": list(progress.mixtures),
            },
            "pieces": self._pieces.number,
            "method": self.method.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "average": None if self._average is None else self._average.state_dict(),
            "precision": self.fabric._precision.state_dict(),
        }

    def load(self, state: Checkpoint) -> None:
        """Go on from `state`."""
        self.progress = Progress(**state["progress"])
        if not self._is_first_rank:  # the sums are those of all ranks
            self.progress.loss_sum, self.progress.correct, self.progress.images = 0.0, 0, 0
        self._pieces.number = max(self._pieces.number, state["pieces"])
        self.method.load_state_dict(state["method"])
        self._optimizer.load_state_dict(state["optimizer"])
        if self._average is not None:
            self._average.load_state_dict(state["average"])
        self.fabric._precision.load_state_dict(state["precision"])

    def _save_if_due(self) -> None:
        steps, minutes = self.config.checkpoint_steps, self.config.checkpoint_minutes
        due = steps is not None and self.progress.batch % steps == 0
        if self._any_rank(due or time.monotonic() - self._saved_at > 60 * minutes):
            self.save()

    def _stop_if_asked(self, request: StopRequest, *, between_epochs: bool = False) -> None:
        if between_epochs and self.progress.epoch == self.config.epochs:
            return
        reason = self._agree(request.reason)
        if reason:
            self.save()
            if self._is_first_rank:
                self.callback.finish()
            place = f"epoch {self.progress.epoch + 1}, step {self.progress.batch}"
            why = "the time is up" if reason == TIME_IS_UP else "asked to stop"
            raise StoppedError(
                reason, f"stopped in {place}: {why}", "", f"go on: longtail train --resume {self.folder.path}"
            )

    # Ranks

    @property
    def _is_first_rank(self) -> bool:
        return self.fabric.is_global_zero

    def _say(self, message: str) -> None:
        if self._is_first_rank:
            self.folder.log(message)
            self.callback.say(message)

    def _any_rank(self, here: bool) -> bool:
        return bool(self._agree(int(here)))

    def _agree(self, number: int) -> int:
        """The number that any rank has if it is not 0; the same on all ranks."""
        if self.fabric.world_size == 1:
            return number
        flag = torch.tensor([number, -number], device=self.fabric.device)
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        most, least = int(flag[0]), -int(flag[1])
        return most or least

    def _epoch_sums(self) -> tuple[float, float, float]:
        """Losses, right predictions and images of the epoch so far, over all ranks."""
        progress = self.progress
        sums = torch.tensor([progress.loss_sum, progress.correct, progress.images], dtype=torch.float64)
        if self.fabric.world_size > 1:
            sums = sums.to(self.fabric.device)
            dist.all_reduce(sums)
        loss_sum, correct, images = sums.tolist()
        return loss_sum, correct, images
