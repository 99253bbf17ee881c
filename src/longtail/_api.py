"""The commands `train`, `tune`, `check` and `report RUN RUN` for Python: same checks, defaults and folders."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from longtail.training.duration import parse_duration
from longtail.training.flags import TrainFlags, nest_flags, with_flags
from longtail.training.settings import merge, resolve_settings

if TYPE_CHECKING:
    from longtail.data.check import CheckReport
    from longtail.evaluation import Comparison
    from longtail.study.tune import Tuned
    from longtail.training import Run
    from longtail.training.train_seeds import SeedGroup
    from longtail.training.training_screen import TrainingScreen


@overload
def train(
    data: str | PathLike[str] | None = None,
    *,
    seeds: None = None,
    out: str | PathLike[str] | None = None,
    resume: str | PathLike[str] | None = None,
    accept_data_changes: bool = False,
    config: str | PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    budget: Literal["paper", "quick"] = "paper",
    show: bool = True,
    **flags: Unpack[TrainFlags],
) -> "Run": ...


@overload
def train(
    data: str | PathLike[str] | None = None,
    *,
    seeds: int,
    out: str | PathLike[str] | None = None,
    resume: Literal["auto"] | None = None,
    config: str | PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    budget: Literal["paper", "quick"] = "paper",
    show: bool = True,
    **flags: Unpack[TrainFlags],
) -> "SeedGroup": ...


@with_flags()
def train(
    data: str | PathLike[str] | None = None,
    *,
    seeds: int | None = None,
    out: str | PathLike[str] | None = None,
    resume: str | PathLike[str] | None = None,
    accept_data_changes: bool = False,
    config: str | PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    budget: Literal["paper", "quick"] = "paper",
    show: bool = True,
    **flags: Unpack[TrainFlags],
) -> "Run | SeedGroup":
    """Check, train, evaluate and report; what is None is left to the recipe, or else to the defaults.

    Args:
        data: a folder, a CSV, or a name; see `RunConfig`.
        **flags: settings by their short names: `longtail.training.TrainFlags`.
        seeds: train so many runs, from the seed on; None for one.
        out: the run's folder, or that of all seeds; the first free `runs/NAME-N` if None.
        resume: a run to resume, or "auto" for the one in `out` where there is one.
        accept_data_changes: resume although images changed: old ones stay in their split, new ones are trained on.
        config: a YAML file of settings, such as the config.yaml of a run.
        settings: any others, nested: `{"optim": {"momentum": 0.8}}`.
        budget: "quick" keeps a twentieth of the recipe's epochs.
        show: whether to show progress on stderr.

    Returns:
        The finished run: `run.metrics["balanced"]`, `run.metrics["few"]` (None where a group is empty), `run.path`.
        With `seeds`, all runs: `group.runs`, and `group.summary.spreads["balanced"]` with `mean` and `deviation`.

    Raises:
        LongtailError: its three lines say what is wrong, why it matters and what to do.
    """
    from longtail._errors import UsageError
    from longtail.training import Callback
    from longtail.training import train as train_run
    from longtail.training.train_seeds import train_seeds

    chosen, folder, resumes = resolve_settings(
        merge(nest_flags({"data": data, **flags}), settings or {}),
        out=None if out is None else Path(out),
        resume=None if resume is None else fspath(resume),
        config=None if config is None else Path(config),
        budget=budget,
    )
    if seeds is not None and (accept_data_changes or resume not in (None, "auto")):
        raise UsageError('seeds goes on with resume="auto" and the folder of all seeds as out, and on the same images')
    with _screen() if show else nullcontext(Callback()) as callback:
        if seeds is not None:
            return train_seeds(chosen, seeds, out=folder, resume=resumes, callback=callback)
        return train_run(chosen, out=folder, resume=resumes, callback=callback, accept_data_changes=accept_data_changes)


@with_flags()
def tune(
    data: str | PathLike[str] | None = None,
    *,
    out: str | PathLike[str] | None = None,
    trials: int | None = None,
    search: Sequence[str] = (),
    storage: str | None = None,
    study: str | None = None,
    config: str | PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    show: bool = True,
    **flags: Unpack[TrainFlags],
) -> "Tuned":
    """Search settings on validation images, and train the best; called again, it goes on with the study.

    Args:
        data: a folder, a CSV, or a name; see `RunConfig`.
        **flags: settings by their short names; `time` bounds the whole, 10 minutes if it is not given.
        out: the study's folder; `runs/NAME-study` if None.
        trials: at most so many in this process; as many as the time allows if None.
        search: heads, or from scratch methods, to search; the usual ones if empty.
        storage: the URL of a database; SQLite in the study's folder if None.
        study: the name of the study in the storage; that of its folder if None.
        config: a YAML file of settings.
        settings: any others, nested: `{"optim": {"momentum": 0.8}}`.
        show: whether to show progress on stderr.

    Returns:
        The study: `found.run` is the best run, trained; `found.best.params` `found.best.value`.

    Raises:
        LongtailError: its three lines say what is wrong, why it matters and what to do.
    """
    from longtail.study import check_optuna

    check_optuna()
    from longtail.study.tune import tune as run_study
    from longtail.training import Callback

    minutes = parse_duration(flags.pop("time", None), "time")
    chosen, _, _ = resolve_settings(
        merge(nest_flags({"data": data, **flags}), settings or {}), config=None if config is None else Path(config)
    )
    with _screen() if show else nullcontext(Callback()) as callback:
        return run_study(
            chosen,
            out=None if out is None else Path(out),
            minutes=minutes,
            named=flags,
            choices=tuple(search),
            trials=trials,
            storage=storage,
            name=study,
            callback=callback,
        )


def _screen() -> "TrainingScreen":
    from longtail.training.training_screen import TrainingScreen

    return TrainingScreen()


def check(
    data: str | PathLike[str],
    *,
    root: str | PathLike[str] | None = None,
    seed: int = 0,
    full: bool = False,
    path_column: str | None = None,
    label_column: str | None = None,
    allow_empty: bool = False,
    ignore_unknown: bool = False,
) -> "CheckReport":
    """Check a data set without training: sizes, imbalance, unreadable and repeated images, advice.

    Args:
        data: a folder, a CSV, or a name; see `longtail.data.open_dataset`.
        root: the folder of the named data sets.
        seed: of the long-tailed subset of a named data set.
        full: decode every image instead of only its header.
        path_column: of a CSV, the column of image files.
        label_column: of a CSV, the column of classes.
        allow_empty: leave out classes without a training image instead of stopping.
        ignore_unknown: leave out test images of classes that training does not have, instead of stopping.

    Raises:
        DataError: nothing could be trained on it.
    """
    from longtail.data.check import check_data
    from longtail.data.open_dataset import take_inventory

    found = take_inventory(
        data,
        root,
        seed,
        path_column=path_column,
        label_column=label_column,
        allow_empty=allow_empty,
        ignore_unknown=ignore_unknown,
    )
    return check_data(found, full=full)


def compare(*runs: "str | PathLike[str] | Run", as_trained: bool = False) -> "Comparison":
    """Compare finished runs on the same test images, each with the first: what differs, with paired intervals.

    Args:
        runs: two or more, as folders or as `train` gave them.
        as_trained: leave out what `longtail.adjust` stored.

    Raises:
        DataError: a run is not finished, or they have not the same test images.
    """
    from longtail.training.run_folder.report import compare as compare_folders

    folders = [Path(run) if isinstance(run, str | PathLike) else run.path for run in runs]
    return compare_folders(folders, as_trained=as_trained)
