"""A run from settings to a finished folder."""

import contextlib
import shlex
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import torch

from longtail._errors import DataError, LongtailError, MemoryFullError, UsageError, counted
from longtail._printable import hide_passwords
from longtail.data.images import FileImages
from longtail.data.open_dataset import hold_out_validation
from longtail.evaluation import Evaluation
from longtail.training.advice import advice
from longtail.training.best_checkpoint import load_best_checkpoint
from longtail.training.best_epoch import check_validated
from longtail.training.build import build_run, open_data
from longtail.training.callback import Callback
from longtail.training.check_state import check_state
from longtail.training.checkpoint import BEST, check_fits, load_checkpoint
from longtail.training.extend_run import extend_run
from longtail.training.fit_head import fit_head, keeper_for
from longtail.training.frozen_head import scored_images
from longtail.training.launch import launch
from longtail.training.loggers import add_loggers, check_loggers
from longtail.training.loop import TrainingLoop
from longtail.training.plan_run import budget_of, describe_data, describe_run, larger_size, plan_run
from longtail.training.run_config import Keep, RunConfig
from longtail.training.run_folder.data_record import (
    data_changes,
    data_record,
    keep_sides,
    read_record,
    refuse_changes,
    write_record,
)
from longtail.training.run_folder.diagnostics import read_diagnostics
from longtail.training.run_folder.model import save_model
from longtail.training.run_folder.read import open_run
from longtail.training.run_folder.report import read_training
from longtail.training.run_folder.run_lock import lock_holder, run_lock
from longtail.training.run_folder.sums import remove_sums
from longtail.training.run_folder.write import RunFolder, next_folder, write_results
from longtail.training.settings import changed_settings, check_settings, read_config, resolve_settings
from longtail.training.stop_request import TIME_IS_UP, StoppedError

# What may go to training, of the time that is left before it; the rest is for the head and the report.
_TRAINING_SHARE = 0.75


@dataclass(frozen=True)
class Run:
    """A finished run.

    Args:
        path: its folder.
        evaluation: its numbers on the test images.
    """

    path: Path
    evaluation: Evaluation

    @property
    def metrics(self) -> dict[str, float | None]:
        """The summary numbers by name; None where a group is empty."""
        return self.evaluation.metrics

    @property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """The method's own diagnostics after some epochs, at most 21 of them, the last among them."""
        return read_diagnostics(self.path).records

    def __repr__(self) -> str:
        found = self.metrics
        shown = (f"{name} {found[name]:.1%}" for name in ("balanced", "top1") if found[name] is not None)
        return f"<Run {self.path}: {', '.join(shown)} on {counted(self.evaluation.images, 'test image')}>"

    @property
    def advice(self) -> list[str]:
        """What to do next, a sentence each."""
        epochs = read_config(self.path).get("epochs") or 0
        return advice(self.path, self.evaluation, read_training(self.path), epochs=epochs)

    def _repr_html_(self) -> str:
        return self.evaluation._repr_html_()


def train(
    config: RunConfig,
    *,
    out: Path | None = None,
    resume: bool = False,
    callback: Callback | None = None,
    started: float | None = None,
    accept_data_changes: bool = False,
    finish: bool = False,
) -> Run:
    """Check, train, evaluate, report.

    Args:
        config: the settings.
        out: the run's folder; `runs/NAME-N` if None.
        resume: whether to go on from the checkpoint in `out`; without one the run starts.
        callback: is told what happens.
        started: when the time of the run began, by the monotonic clock; now if None.
        accept_data_changes: resume although images changed: old ones stay on their side, new ones are trained on.
        finish: whether to leave the training where the checkpoint has it, and only evaluate and report.
    """
    with contextlib.ExitStack() as held:
        return _train(config, out, resume, callback, started, held, accept=accept_data_changes, finish=finish)


def finish_run(folder: Path, *, keep: Keep | None = None, callback: Callback | None = None) -> Run:
    """Make a usable model of a run that was stopped: its weights as they are, evaluated and reported.

    Args:
        folder: of the run, which can still be resumed afterwards.
        keep: whose weights: those of the last step, or of the best epoch on validation; None for the run's setting.
        callback: is told what happens.
    """
    config, _, _ = resolve_settings({"keep": keep}, resume=str(folder))
    run, shown = RunFolder(folder), shlex.quote(str(folder))
    holder = lock_holder(folder)
    if holder is None and not run.has_checkpoint:
        raise DataError(
            f"{folder} has no checkpoint",
            "it stopped before its first checkpoint",
            f"go on with it: longtail train --resume {shown}",
            code="no-checkpoint",
        )
    if holder is None and run.is_finished and config.keep == read_config(folder).get("keep"):
        raise UsageError(
            f"{folder} is finished: it has a model",
            "there is nothing left to finish",
            f"use it: longtail predict {shown} IMAGES, or extend it: longtail train --resume {shown} --epochs N",
        )
    return train(config, out=folder, resume=True, callback=callback, finish=True)


def _train(
    config: RunConfig,
    out: Path | None,
    resume: bool,
    callback: Callback | None,
    started: float | None,
    held: contextlib.ExitStack,
    *,
    accept: bool,
    finish: bool,
) -> Run:
    budget = budget_of(config, time.monotonic() if started is None else started)
    command = hide_passwords(shlex.join(sys.argv))  # of a study's storage
    check_loggers(config.loggers)
    fabric = launch(config)
    folder = RunFolder(Path(fabric.broadcast(str(out or next_folder(config.data)))))
    callback = add_loggers(callback or Callback(), config.loggers, folder.path)
    held.callback(callback.close)
    first = fabric.is_global_zero
    say = callback.say if first else lambda _: None
    if config.deterministic:
        torch.use_deterministic_algorithms(True)
    state, exists = None, resume and folder.path.is_dir()
    if first and exists:
        held.enter_context(run_lock(folder.path))
    if resume and folder.has_checkpoint:
        state, remark = load_checkpoint(folder.path)
        check_state(state, where=str(folder.path))
        if remark:
            say(remark)
    elif first and not exists:
        folder.check_unused()
    data = open_data(config)
    for line in describe_data(data, folder.path):
        say(line)
    sized = config.image_size is not None or state is not None
    if first:
        config = plan_run(config, data, budget, device=fabric.device, callback=callback)
    config = fabric.broadcast(config)
    everything, drawn = data, config.head is not None and bool(config.val_fraction) and not len(data.val)
    if drawn:
        data = hold_out_validation(data, config.val_fraction or 0.0, config.seed)
    record = data_record(data)
    old = read_record(folder.path, files=isinstance(data.train, FileImages)) if state is not None else None
    if old is not None and (changes := data_changes(old, record)):
        if not accept:
            refuse_changes(config.data, folder.path, changes)
        data = keep_sides(data, old)
        undrawn = {key: image._replace(split="train") if image.split == "val" else image for key, image in old.items()}
        everything, record = keep_sides(everything, undrawn) if drawn else data, data_record(data)
        for line in changes:
            say(f"accepted: {line}")
    check_validated(config, len(data.val))
    parts = build_run(config, data, device=fabric.device)
    problems = [problem.message for problem in parts.data.problems]
    for line in (
        *parts.data.notes,
        *problems,
        *describe_run(parts.config, data, budget, device=fabric.device, trains=not finish),
    ):
        say(line)
    if state is None and first:
        if not exists:
            folder.create()
            held.enter_context(run_lock(folder.path))
            folder.check_unused()
        folder.write_config(config.as_dict())
        folder.write_environment(command=command, device=str(fabric.device))
        write_record(folder.path, record)
        folder.log(f"started: {command}")
    parts, head = fit_head(parts, budget.seconds, fabric, callback, own_validation=not drawn)
    if head is not None and not sized and fabric.world_size == 1:
        while size := larger_size(parts.config, data, budget, device=fabric.device):
            say(f"size     {size} px: there is time for larger images")
            parts = build_run(replace(config, image_size=size), data, device=fabric.device)
            parts, head = fit_head(parts, budget.left, fabric, callback, own_validation=not drawn)
    settings = parts.config.as_dict()
    if state is not None:
        check_settings(state["config"], settings)
        check_fits(state, classes=list(parts.data.classes), settings=settings, where=str(folder.path))
        others = changed_settings(state["config"], settings)
        if told := [change for key, change in others.items() if key not in ("optim.lr", "epochs")]:
            say(f"changed since the last checkpoint: {', '.join(told)}")
        before, now = state["config"]["optim"]["lr"], parts.config.optim.lr
        over = state["progress"]["epoch"] >= parts.config.planned_epochs
        if before != now and over:
            say(f"the training has ended, so --lr {now:g} has no effect; --epochs N trains longer")
        elif before != now:
            say(f"the learning rate changes from {before:g} to {now:g}")
        extended = extend_run(
            state, parts.config.planned_epochs, parts.method.stages, where=shlex.quote(str(folder.path))
        )
        if extended:
            say(extended)
        if first:
            remove_sums(folder.path)
            folder.log(f"{'finished' if finish else 'resumed'}: {command}")
            if settings != read_config(folder.path):
                folder.write_config(settings)
            if accept:
                write_record(folder.path, record)
    elif first:
        folder.write_config(settings)
    fabric.barrier()
    tuned = parts.config.head is not None and parts.config.planned_epochs > 0
    keeper = keeper_for(parts, head, fabric) if head is not None and tuned else None
    minutes = None if budget.seconds is None else min(budget.left / 60 * _TRAINING_SHARE, parts.config.max_time or inf)
    loop = TrainingLoop(parts, folder, fabric, callback, minutes=minutes)
    if state is not None:
        loop.load(state)
    try:
        if not finish:
            loop.run()
    except StoppedError as error:
        if error.reason != TIME_IS_UP or not loop.progress.step:
            raise
        say(f"time is up after {loop.progress.epoch} of {parts.config.planned_epochs} epochs; the model so far is used")
    except LongtailError as error:
        if first or isinstance(error, MemoryFullError):  # which any rank may have alone
            folder.log(str(error))
        raise
    except Exception:
        if first:
            folder.log(traceback.format_exc())
        raise
    if parts.config.keep == "best" and (folder.path / BEST).is_file():
        best = load_best_checkpoint(folder.path, loop.evaluated_model)
        loop.forget_predictions()
        say(f"kept: epoch {best.epoch}, the best on validation (balanced accuracy {best.balanced:.1%})")
    val_images, val = parts.data.val, loop.predict("val", show=True) if len(parts.data.val) else None
    if keeper is not None:
        verdict, val = keeper.choose(all_images=drawn)
        say(verdict)
    if tuned:  # the first rank chose for all, which predict the test images together
        net = parts.method.model
        net.load_state_dict(fabric.broadcast(net.state_dict()))
        loop.forget_predictions()
    test = loop.predict("test", show=True)
    if head is not None and val is None:
        val_images, val = scored_images(head.choice, parts.data)
    data = replace(everything if keeper else parts.data, val=val_images)
    if first:
        say("writing the report")
        save_model(
            folder.path / "model",
            loop.evaluated_model,
            config=parts.config,
            data=data,
            preprocessing=parts.preprocessing,
        )
        records, departures = loop.progress.records, parts.method.departures
        write_results(
            folder.path,
            data,
            test=test,
            val=val,
            records=records,
            departures=departures,
        )
        folder.finish()
        folder.log("finished")
    fabric.barrier()
    run = load_run(folder.path)
    if first:
        callback.results(run.metrics)
    return run


def load_run(path: Path) -> Run:
    """Read a finished run."""
    run = open_run(path)
    return Run(path, run.evaluate())
