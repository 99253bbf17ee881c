"""Search settings on validation images, and train the best: `longtail tune`.

    plan → study (made, or joined) → trials until the time is up → the best run, trained → the page

Every trial is in the storage as soon as it is over, and in trials.csv; best.yaml repeats the best so far. So a study
that is stopped goes on with the same command, and several processes can work on one.
"""

import contextlib
import hashlib
import shlex
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lightning_fabric import Fabric
from optuna.exceptions import StorageInternalError, TrialPruned
from optuna.pruners import MedianPruner
from optuna.samplers import TPESampler
from optuna.storages import RDBStorage, fail_stale_trials
from optuna.study import Study
from optuna.trial import FixedTrial, FrozenTrial, Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from longtail._errors import MemoryFullError, UsageError, counted
from longtail._files import make_folder
from longtail.data import LongTailData
from longtail.data.open_dataset import hold_out_validation
from longtail.study.heartbeat import heartbeat
from longtail.study.open_storage import (
    NAME,
    Identity,
    check_identity,
    find_study,
    gone,
    make_study,
    open_storage,
    quiet,
    storage_file,
)
from longtail.study.score_training import (
    Embedded,
    embed_for_heads,
    score_training,
    trial_config,
    without_test,
)
from longtail.study.search_space import SearchSpace, choose_choices
from longtail.study.write_study import BEST, TRIALS, best_trial, over, write_page, write_study
from longtail.training import Callback, Run, RunConfig, build_config, load_run, train
from longtail.training.build import open_data
from longtail.training.build_method import find_method
from longtail.training.duration import format_duration
from longtail.training.frozen_head import can_judge
from longtail.training.launch import launch
from longtail.training.plan_run import Budget, plan_run
from longtail.training.run_folder.data_record import data_record
from longtail.training.run_folder.run_lock import lock_holder
from longtail.training.run_folder.write import RunFolder
from longtail.training.settings import read_config
from longtail.training.stop_request import DivergedError, StoppedError

# A trial that trains is planned for the first share of the time, so that there are at least about as many as its
# inverse; the images are embedded at a size that is planned for the second.
_TRIAL_SHARE, _EMBED_SHARE = 1 / 10, 1 / 3
# Held out where there are no validation images and trials train.
_HELD_OUT = 0.2
# Seconds for the test images and the report of the best run, and how much longer than a trial its training may take.
_OVERHEAD, _SLOWER = 15.0, 1.3
# Trials before which nothing is pruned.
_STARTUP = 4
# For a study whose time is not given.
_MINUTES = 10.0


@dataclass(frozen=True)
class Tuned:
    """What a study came to.

    Args:
        path: the folder of the study.
        best: its best trial.
        judge: the images that decided.
        run: the best settings, trained; None if another process is training them.
        trials: how many are finished or pruned.
    """

    path: Path
    best: FrozenTrial
    judge: str
    run: Run | None
    trials: int

    def __repr__(self) -> str:
        best = f"trial {self.best.number} of {self.trials}, {self.best.value:.1%} balanced accuracy on {self.judge}"
        return f"<Tuned {self.path}: {best}>"


class _TimeIsUpError(Exception):
    """The search is over, in the middle of a trial."""


def tune(
    config: RunConfig,
    *,
    out: Path | None = None,
    minutes: float | None = None,
    named: Mapping[str, object] | None = None,
    choices: tuple[str, ...] = (),
    trials: int | None = None,
    storage: str | None = None,
    name: str | None = None,
    callback: Callback | None = None,
    started: float | None = None,
) -> Tuned:
    """Search until the time is up, and train the best.

    Args:
        config: the settings that are not searched; what is open is planned.
        out: the folder of the study; `runs/NAME-study` if None.
        minutes: for all of it; ten if None.
        named: settings that the user named: a head or method among them is not searched.
        choices: names of heads or methods to search; the usual ones if empty.
        trials: at most so many in this process; None for as many as the time allows.
        storage: the URL of a database; SQLite in `out` if None.
        name: of the study in the storage; that of `out` if None.
        callback: is told what happens.
        started: when the time began, by the monotonic clock; now if None.
    """
    begun = time.monotonic() if started is None else started
    if trials is not None and trials < 1:
        raise UsageError(f"trials must be at least 1, got {trials}")
    out = out or Path("runs") / f"{Path(config.data.partition(':')[0].rstrip('/')).stem or 'run'}-study"
    minutes = minutes or _MINUTES
    pinned = (named or {}).get("head" if config.head is not None else "method")
    pinned = pinned if isinstance(pinned, str) and pinned != "fine_tune" else None
    say = (callback := callback or Callback()).say
    url = storage or f"sqlite:///{out / NAME}"
    if storage is None and (out / TRIALS).exists() and not (out / NAME).exists():
        raise gone(url, f"{out / TRIALS} has trials, and {NAME} is missing")
    find_method(config)
    whole = open_data(config)
    data, tests = without_test(whole), len(whole.test)
    digest = data_digest(data)
    make_folder(out)
    connection = open_storage(url)
    fabric = launch(config)
    try:
        found = find_study(connection, name or out.name)
        if found is None:
            space = _plan(config, data, 60 * minutes, fabric, callback, pinned=pinned, choices=choices)
            identity = Identity(config.data, digest, space.base.as_dict(), list(space.choices), space.tunes)
            found = make_study(connection, name or out.name, identity, space.first())
        study, identity = found
        check_identity(identity, data=config.data, digest=digest, url=url)
        space = SearchSpace(build_config(identity.base), tuple(identity.choices), identity.tunes)
        search = _Search(
            connection, study, space, data, fabric, out, url, callback, begun=begun, seconds=60 * minutes, tests=tests
        )
        done = len(over(study))
        joined = f": going on after {counted(done, 'trial')}" if done else ""
        say(f"study    {out}{joined}, {format_duration(60 * minutes)}, on {search.judge}")
        try:
            search.run(trials)
        except (KeyboardInterrupt, StoppedError) as error:
            reason = error.reason if isinstance(error, StoppedError) else signal.SIGINT
            raise search.stopped(reason) from None
        return search.finish()
    except (SQLAlchemyError, StorageInternalError) as error:
        raise gone(url, error) from error


def data_digest(data: LongTailData) -> str:
    """Of the classes, and of the images to train on with their labels, wherever they are."""
    content = hashlib.sha256(repr(data.classes).encode("utf-8", "surrogateescape"))
    for image in sorted((image.split, image.label, image.digest) for image in data_record(data).values()):
        content.update(repr(image).encode("utf-8", "surrogateescape"))
    return content.hexdigest()


def _plan(
    config: RunConfig,
    data: LongTailData,
    seconds: float,
    fabric: Fabric,
    callback: Callback,
    *,
    pinned: str | None,
    choices: tuple[str, ...],
) -> SearchSpace:
    """The base of all trials: network, size and epochs; and whether there is time to fine-tune."""
    now = time.monotonic()
    asked = config
    trial = Budget(_TRIAL_SHARE * seconds if config.epochs is None else None, now)
    base = plan_run(asked, data, trial, device=fabric.device, callback=Callback(), embed=False)
    tunes = base.head is not None and bool(base.epochs)
    if base.head is not None and not tunes:
        embedding = Budget(_EMBED_SHARE * seconds, now)
        base = plan_run(replace(asked, epochs=0), data, embedding, device=fabric.device, callback=callback)
    if (tunes or base.head is None) and not len(data.val):
        base = replace(base, val_fraction=base.val_fraction or _HELD_OUT)
    base = replace(base, time=None)
    return SearchSpace(base, choose_choices(base, choices, pinned=pinned), tunes)


class _Search:
    """Trials of one process."""

    def __init__(
        self,
        storage: RDBStorage,
        study: Study,
        space: SearchSpace,
        data: LongTailData,
        fabric: Fabric,
        out: Path,
        url: str,
        callback: Callback,
        *,
        begun: float,
        seconds: float,
        tests: int,
    ) -> None:
        self._storage, self._study, self._space, self._fabric = storage, study, space, fabric
        self._out, self._url = out, url
        self._callback, self._deadline, self._begun = callback, begun + seconds, begun
        base = space.base
        self._trains = space.tunes or not space.has_heads
        if self._trains and not len(data.val):
            data = hold_out_validation(data, base.val_fraction or _HELD_OUT, base.seed)
        self._data = data
        self._embedded: Embedded | None = None
        # Seconds that the training of the best takes beside what its trial took.
        self._beside = _OVERHEAD
        if space.has_heads:
            frozen, now = replace(base, epochs=0), time.monotonic()
            self._embedded = embed_for_heads(
                frozen, data, device=fabric.device, callback=callback, validate=self._trains or can_judge(data)
            )
            each = (time.monotonic() - now) / (len(data.train) + len(data.val))
            self._beside += each * (tests + len(data.train) * bool(base.mirror_features))
        self._reserve = self._beside
        epochs = base.planned_epochs if self._trains else 1
        study.pruner = MedianPruner(n_startup_trials=_STARTUP, n_warmup_steps=epochs // 3, n_min_trials=2)

    @property
    def judge(self) -> str:
        """Which images decide."""
        folds = 1 if self._embedded is None else self._embedded.folds
        return counted(len(self._data.val), "validation image") if folds == 1 else f"{folds}-fold cross-validation"

    def run(self, trials: int | None) -> None:
        """Trials until the time is up, or there are so many."""
        number = 0
        while trials is None or number < trials:
            durations = [trial.duration.total_seconds() for trial in over(self._study) if trial.duration]
            self._reserve = self._beside + _SLOWER * max(durations, default=0.0)
            if time.monotonic() > self._deadline - self._reserve and best_trial(self._study) is not None:
                break  # there is one at least, however long that takes
            self._show()
            try:
                self._one()
            except _TimeIsUpError:
                break
            number += 1
            file = storage_file(self._url)
            self.write()
            if file is not None and not file.exists():
                raise gone(self._url, "the file was removed")

    def _show(self) -> None:
        best, done = best_trial(self._study), len(over(self._study))
        score = f" (best {best.value:.1%})" if best and best.value is not None else ""
        gone_by, all_of_it = time.monotonic() - self._begun, self._deadline - self._begun
        self._callback.progress(f"trial {done + 1}{score}, second", int(gone_by), int(all_of_it) + 1)

    def finish(self) -> Tuned:
        """Train the best settings, unless that has been done, and write the page."""
        best = best_trial(self._study)
        if best is None:
            raise UsageError(
                f"none of {counted(len(self._study.trials), 'trial')} was finished",
                "there is nothing to choose from",
                f"{self._out / TRIALS} has what went wrong; --lr sets where the search begins",
            )
        self.write()
        self._callback.say(f"best     trial {best.number}: {best.value:.1%} balanced accuracy on {self.judge}")
        folder = self._out / f"trial-{best.number}"
        write_page(self._out, self._study, judge=self.judge, data=self._space.base.data, best=folder)
        run = self._train_best(folder, best)
        return Tuned(self._out, best, self.judge, run, len(over(self._study)))

    def stopped(self, reason: int) -> StoppedError:
        """The error of a search that was asked to stop; what is known is written down."""
        self.write()
        best = best_trial(self._study)
        what = f"stopped after {counted(len(over(self._study)), 'trial')}: they are kept"
        repeat = shlex.join(["longtail", "train", "--config", str(self._out / BEST)])
        use = f"train the best so far: {repeat}" if best else "none is finished yet"
        return StoppedError(reason, what, use, "go on: the same command again")

    def write(self) -> None:
        """Write what is known so far."""
        write_study(self._out, self._study, self._config)

    def _config(self, trial: FrozenTrial) -> RunConfig:
        return trial_config(self._space.base, self._space.suggest(FixedTrial(trial.params)))

    def _train_best(self, folder: Path, best: FrozenTrial) -> Run | None:
        """The best run: trained here, or found finished, or left to another process that trains it."""
        if (holder := lock_holder(folder)) is not None:
            self._callback.say(f"{holder} trains the best run in {folder}")
            return None
        if RunFolder(folder).is_finished:
            return load_run(folder)
        there = (folder / "config.yaml").exists()
        config = build_config(read_config(folder)) if there else self._config(best)
        return train(config, out=folder, resume=there, callback=self._callback)

    def _one(self) -> None:
        with quiet():
            fail_stale_trials(self._study)  # those of processes that were killed; they are tried again
            trial = self._study.ask()
            # Of the trial's number, so that a study repeats, and two processes do not suggest the same.
            seed = 7919 * self._space.base.seed + trial.number
            self._study.sampler = TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)
            try:
                with heartbeat(self._storage, self._study, trial):
                    value = self._score(trial)
            except TrialPruned:
                self._study.tell(trial, state=TrialState.PRUNED)
            except (DivergedError, MemoryFullError) as error:
                trial.set_user_attr("error", error.what[:300])
                self._study.tell(trial, state=TrialState.FAIL)
            except BaseException:
                with contextlib.suppress(SQLAlchemyError, StorageInternalError):
                    self._study.tell(trial, state=TrialState.FAIL)
                    if trial.params:
                        self._study.enqueue_trial(trial.params)  # it is tried again when the study goes on
                raise
            else:
                self._study.tell(trial, value)

    def _score(self, trial: Trial) -> float:
        settings = self._space.suggest(trial)

        def reported(step: int, score: float) -> None:
            trial.report(score, step)
            if trial.should_prune():
                raise TrialPruned

        def check() -> None:
            if time.monotonic() > self._deadline - self._reserve and best_trial(self._study) is not None:
                raise _TimeIsUpError

        config = trial_config(self._space.base, settings)
        if self._embedded is not None and not (self._space.tunes and config.epochs):
            return self._embedded.score(dict(config.head or {}), reported)
        return score_training(self._space.base, settings, self._data, self._fabric, reported=reported, check=check)
