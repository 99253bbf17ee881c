"""The training loop: plain, exact, and the same on one device or many.

Fabric places the model and the batches, casts precisions and averages gradients over the ranks; the loop itself is
written out here, because what a run promises lies in it:

- **Exact resuming.** A batch is a function of (seed, epoch, number, sampler), torch's generators are seeded from the
  position before each step, and a checkpoint holds weights, optimiser, position and the sums of the epoch. So a run
  that was killed and resumed goes through the same states as one that was not.
- **Stopping between steps.** Signals and the clock only set a flag. After each step all ranks agree on it, save and
  leave.
- **Nothing bad is kept.** Loss and gradients are checked before the weights change, and the weights before a
  checkpoint is written. If they are not sound, the run stops, and the last checkpoint is one from before.

`longtail.methods.base` says which hook of the method is called when.
"""

import math
import time

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import nn

from longtail.data.splits import SplitName
from longtail.data.views import Batch
from longtail.methods import Method, MethodOutput
from longtail.nn import frozen_statistics
from longtail.training.ascend_on_tail import ascend_on_tail, tail_classes
from longtail.training.best_checkpoint import save_best_checkpoint
from longtail.training.best_epoch import best_epoch, has_stopped_rising
from longtail.training.build import Parts, batch_size_for
from longtail.training.callback import Callback, Row
from longtail.training.check_state import check_position, check_weights, refused
from longtail.training.checkpoint import Checkpoint, save_checkpoint
from longtail.training.exploded import exploded, gradient_norm
from longtail.training.method_record import method_record, record_due
from longtail.training.metrics_row import metrics_row
from longtail.training.microbatches import MicroBatches, cut_microbatches
from longtail.training.optimizer import (
    ascended,
    build_average,
    build_optimizer,
    learning_rate,
    reseed,
    set_learning_rate,
)
from longtail.training.predict_logits import predict_logits
from longtail.training.progress import Progress
from longtail.training.ranks import Ranks
from longtail.training.run_folder.write import RunFolder
from longtail.training.step_batches import StepBatches
from longtail.training.stop_request import DivergedError, StoppedError, StopRequest
from longtail.training.training_images import TrainingImages

# What `reseed` is called for, so that no two purposes draw the same numbers.
_FORWARD, _PREPARE, _START_EPOCH = 1, 2, 3


class TrainingLoop:
    """One training, from the first or from any later step to the last.

    Args:
        parts: settings, data and method.
        folder: where checkpoints and metrics go.
        fabric: launched.
        callback: is told what happens, on the first rank.
        minutes: after which it stops; None for the setting `max_time`.
    """

    def __init__(
        self, parts: Parts, folder: RunFolder, fabric: Fabric, callback: Callback, *, minutes: float | None = None
    ) -> None:
        self._minutes = parts.config.max_time if minutes is None else minutes
        self.parts, self.folder, self.fabric, self.callback = parts, folder, fabric, callback
        self.config, self.ranks = parts.config, Ranks(fabric)
        self.progress = Progress()
        self.method: Method = parts.method
        if self.config.compile:
            self.method.model.compile()
        self._microbatches = MicroBatches(
            batch_size_for(self.config, parts.data.train),
            folder.path,
            fabric,
            self._say,
            first=self.config.optim.accumulate,
            allowed=self.method.microbatches,
        )
        self._batches = StepBatches(parts, self.ranks, self._say)
        self._tail = tail_classes(self.method.class_counts)
        optimizer = build_optimizer(self.method, self.config.optim)
        self._module, self._optimizer = fabric.setup(self.method, optimizer)
        self._average = build_average(self.method.model, self.config.optim.ema)
        self._saved_at = time.monotonic()
        self._predicted: dict[SplitName, NDArray[np.float32]] = {}

    def run(self) -> None:
        """Train to the end, or raise `StoppedError`, `DivergedError` or `MemoryFullError`."""
        try:
            self._run()
        finally:
            self._batches.close()

    def _run(self) -> None:
        epochs, first = self.config.planned_epochs, self.progress.epoch
        with StopRequest(self._minutes, self._asked_to_stop) as request:
            for epoch in range(first, epochs):
                if self.progress.batch == 0 and self._has_stopped_rising():
                    break
                self._module.train()
                self.method.set_progress(epoch / epochs)
                if self.progress.batch == 0:
                    self._share_buffers()
                    reseed(self.config.seed, _START_EPOCH, epoch, self.ranks.rank)
                    self.method.start_epoch(TrainingImages(self.parts, self.fabric, self.ranks))
                    self._module.train()
                steps = self._batches.steps()
                if epoch == first:
                    self._begin(steps)
                for batches in self._batches.of_epoch(epoch, lambda: self.progress.batch):
                    self._one_step(batches, steps=steps)
                    self._stop_if_asked(request)
                    self._save_if_due()
                self._end_epoch()
                self._stop_if_asked(request, between_epochs=True)
        if self.ranks.is_first:
            self.callback.finish()

    def _asked_to_stop(self) -> None:
        if self.ranks.is_first:
            self.callback.stopping()

    def _has_stopped_rising(self) -> bool:
        """Whether the setting `patience` ends the training here."""
        patience, rows = self.config.patience, self.progress.rows
        last_stage = self.method.stages[-1] * self.config.planned_epochs
        if patience is None or not has_stopped_rising(rows, patience=patience, last_stage=last_stage):
            return False
        self._say(f"balanced accuracy on validation has not risen for {patience} epochs: the training ends")
        return True

    def _begin(self, steps: int) -> None:
        check_position(
            self.progress,
            steps=steps,
            microbatches=self._microbatches.number,
            batch_size=batch_size_for(self.config, self.parts.data.train),
            where=str(self.folder.path),
        )
        if self.ranks.is_first:
            self.callback.start(epochs=self.config.planned_epochs, steps=steps, epoch=self.progress.epoch)

    # Steps

    def _one_step(self, batches: tuple[Batch, ...], steps: int) -> None:
        """One update of the weights."""
        progress, config = self.progress, self.config
        # Of the start of the step: a position, so that nothing depends on the past.
        done = (progress.epoch + progress.batch / steps) / config.planned_epochs
        lr = learning_rate(config.optim, progress=done, epochs=config.planned_epochs, stages=self.method.stages)
        lr *= self.method.lr_scale
        set_learning_rate(self._optimizer, lr)
        self._predicted = {}
        reseed(config.seed, _PREPARE, progress.epoch, progress.batch, self.ranks.rank)
        batches = self.method.prepare(*self.fabric.to_device(batches))
        found = self._microbatches.work(lambda: self._gradients(batches), undo=self._optimizer.zero_grad)
        if not self._all_finite(found["loss"]):
            raise self._diverged(f"the loss is {found['loss']}", lr)
        if config.precision != "fp16" and not self._all_finite(norm := gradient_norm(self.method)):
            # In fp16 a scaler leaves out such steps and tries a smaller scale.
            raise self._diverged(f"the norm of the gradient is {norm}", lr)
        if config.optim.clip_norm is not None:
            self.fabric.clip_gradients(self._module, self._optimizer, max_norm=config.optim.clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.method.after_step()
        if self._average is not None:
            self._average.update_parameters(self.method.model)
        images = len(batches[0].target)
        for name, value in found.items():
            progress.sums[name] = progress.sums.get(name, 0.0) + (value if name == "correct" else value * images)
        progress.sums["images"] = progress.sums.get("images", 0) + images
        progress.batch += 1
        progress.step += 1
        if self.ranks.is_first:
            self.callback.step(epoch=progress.epoch, batch=progress.batch, loss=found["loss"], lr=lr, images=images)

    def _gradients(self, batches: tuple[Batch, ...]) -> dict[str, float]:
        """Leave the gradients of a step in the weights; SAM's are those at the end of its ascent."""
        found = self._backward(batches)
        radius = self.config.optim.sam
        if radius is None or not self._all_finite(found["loss"]):
            return found
        if self.config.optim.sam_classes == "tail":
            ascend_on_tail(
                self._optimizer,
                self.method.model,
                batches[0],
                tail=self._tail,
                radius=radius,
                backward=lambda batch, factor: self._backward((batch,), factor=factor, synchronize=False),
                ranks=self.ranks,
            )
            return found
        with ascended(self._optimizer, radius), frozen_statistics(self.method.model):
            self._optimizer.zero_grad()
            self._backward(batches)
        return found

    def _backward(
        self, batches: tuple[Batch, ...], *, factor: float = 1.0, synchronize: bool = True
    ) -> dict[str, float]:
        """The gradient of the batches, one micro-batch after another; means of the loss and its parts, and hits.

        Args:
            batches: one of each sampler.
            factor: multiplies the gradient.
            synchronize: whether it is averaged over the ranks.
        """
        reseed(self.config.seed, _FORWARD, self.progress.epoch, self.progress.batch, self.ranks.rank)
        images = len(batches[0].target)
        found: dict[str, float] = {"loss": 0.0, "correct": 0.0}
        cuts = cut_microbatches(batches, self._microbatches.number)
        for number, cut in enumerate(cuts, start=1):
            target = cut[0].target
            share = len(target) / images
            with self.fabric.no_backward_sync(self._module, enabled=number < len(cuts) or not synchronize):
                output: MethodOutput = self._module(*cut)
                self.fabric.backward(output.loss * share * factor)
            means = {"loss": output.loss, **{f"part/{name}": part for name, part in output.parts.items()}}
            for name, value in means.items():
                found[name] = found.get(name, 0.0) + float(value.detach()) * share
            found["correct"] += int((output.logits.argmax(1) == target).sum())
        return found

    def _all_finite(self, number: float) -> bool:
        return not self.ranks.any(not math.isfinite(number))

    def _check_weights(self) -> None:
        """Stop before weights that are not sound are evaluated or kept."""
        found = exploded(self.method) or (exploded(self._average) if self._average is not None else None)
        if self.ranks.any(found is not None):
            raise self._diverged(found or "another rank has weights that are not sound", self._last_lr, steps=0)

    def _diverged(self, what: str, lr: float, *, steps: int = 1) -> DivergedError:
        progress = self.progress
        where = f"epoch {progress.epoch + 1}, step {progress.batch + steps}, learning rate {lr:.3g}"
        kept = self.folder.path if self.folder.has_checkpoint else None
        return DivergedError.at(f"{what} in {where}", kept=kept, smaller=self.config.optim.lr / 3)

    # Epochs

    def _end_epoch(self) -> None:
        """Evaluate if it is time, write the epoch's line, and save."""
        self._check_weights()
        progress, config = self.progress, self.config
        epoch = progress.epoch + 1
        sums = self._epoch_sums()
        images = sums.pop("images")
        row: Row = {
            "epoch": epoch,
            "train/loss": sums.pop("loss") / images,
            "train/accuracy": sums.pop("correct") / images,
            **{f"train/{name.removeprefix('part/')}": value / images for name, value in sums.items()},
            "lr": self._last_lr,
        }
        if epoch == config.planned_epochs or epoch % self._eval_every == 0:
            # Without a validation split the test split is watched; nothing is ever chosen by it.
            split: SplitName = "val" if len(self.parts.data.val) else "test"
            row |= metrics_row(split, self.predict(split), self.parts.data)
            row |= self.method.epoch_row()
            if self.ranks.is_first and record_due(epoch, epochs=config.planned_epochs, every=self._eval_every):
                progress.records += method_record(self.evaluated_model, self.parts, self.fabric, epoch=epoch)
        progress.rows.append(row)
        best = best_epoch(progress.rows)
        if best is not None and best.epoch == epoch and self.ranks.is_first:
            save_best_checkpoint(self.folder.path, self.evaluated_model, config, best)
        progress.epoch, progress.batch, progress.sums = epoch, 0, {}
        if self.ranks.is_first:
            self.folder.write_metrics(progress.rows)
            self.callback.epoch(row)
        self.save()

    def predict(self, split: SplitName, *, show: bool = False) -> NDArray[np.float32]:
        """The logits of a split by the evaluated model, on every rank; computed once between two steps.

        Args:
            split: whose images are predicted.
            show: whether to show how far it is.
        """
        if split not in self._predicted:
            self._share_buffers()
            images = self.parts.data.split(split)
            told = self.callback.progress if show and self.ranks.is_first else None
            what = {"test": "testing", "val": "validating", "train": "predicting"}[split]
            self._predicted[split] = predict_logits(
                self.evaluated_model,
                images,
                self.parts,
                self.fabric,
                (lambda done, total: told(what, min(done, total), total)) if told else None,
            )
        return self._predicted[split]

    def _share_buffers(self) -> None:
        for module in (self.method.model, self._average):
            if module is not None:
                self.ranks.share_buffers(module)

    def forget_predictions(self) -> None:
        """Compute them again: the weights were changed from outside."""
        self._predicted = {}

    @property
    def evaluated_model(self) -> nn.Module:
        """The model whose numbers count: the average, if there is one."""
        return self.method.model if self._average is None else self._average.module

    @property
    def _last_lr(self) -> float:
        return float(self._optimizer.param_groups[0]["lr"])

    @property
    def _eval_every(self) -> int:
        return self.config.eval_every or 1

    # State

    def save(self) -> None:
        """Write the checkpoint."""
        self._check_weights()
        self._saved_at = time.monotonic()
        state = self.state()
        if self.ranks.is_first:
            save_checkpoint(self.folder.path, state)
        self.fabric.barrier()

    def state(self) -> Checkpoint:
        """All that the rest of the training depends on."""
        progress = self.progress
        return {
            "classes": list(self.parts.data.classes),
            "config": self.config.as_dict(),
            "progress": {
                **vars(progress),
                "sums": self._epoch_sums(),
                "rows": [dict(row) for row in progress.rows],
                "records": list(progress.records),
            },
            "microbatches": self._microbatches.number,
            "method": self.method.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "average": None if self._average is None else self._average.state_dict(),
            "precision": self.fabric._precision.state_dict(),
        }

    def load(self, state: Checkpoint) -> None:
        """Go on from `state`."""
        self.progress = Progress(**state["progress"])
        if not self.ranks.is_first:  # the sums are those of all ranks
            self.progress.sums = dict.fromkeys(self.progress.sums, 0.0)
        self._microbatches.number = max(self._microbatches.number, state["microbatches"])
        where = str(self.folder.path)
        try:
            self.method.load_state_dict(state["method"])
            self._optimizer.load_state_dict(state["optimizer"])
            if self._average is not None:
                self._average.load_state_dict(state["average"])
            self.fabric._precision.load_state_dict(state["precision"])
        except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise refused(where, (str(error).splitlines() or [type(error).__name__])[-1].strip()) from error
        check_weights(self.method, where=where)

    def _save_if_due(self) -> None:
        steps, minutes = self.config.checkpoint_steps, self.config.checkpoint_minutes
        due = steps is not None and self.progress.batch % steps == 0
        if self.ranks.any(due or time.monotonic() - self._saved_at > 60 * minutes):
            self.save()

    def _stop_if_asked(self, request: StopRequest, *, between_epochs: bool = False) -> None:
        if between_epochs and self.progress.epoch == self.config.planned_epochs:
            return
        reason = self.ranks.agree(request.reason)
        if reason:
            self.save()
            if self.ranks.is_first:
                self.callback.finish()
            place = f"epoch {self.progress.epoch + 1}, step {self.progress.batch}"
            raise StoppedError.at(reason, place, self.folder.path)

    def _say(self, message: str) -> None:
        if self.ranks.is_first:
            self.folder.log(message)
            self.callback.say(message)

    def _epoch_sums(self) -> dict[str, float]:
        """The sums of the epoch so far, over all ranks."""
        names = sorted(self.progress.sums)
        sums = self.ranks.sum(torch.tensor([self.progress.sums[name] for name in names], dtype=torch.float64))
        return dict(zip(names, sums.tolist(), strict=True))
