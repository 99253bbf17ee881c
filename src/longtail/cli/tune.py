"""`longtail tune DATA`."""

import time
from pathlib import Path
from typing import Annotated, Unpack

from cyclopts import Parameter

from longtail._printable import show, show_lines
from longtail.cli.train import annotate_flag, summary
from longtail.study import check_optuna
from longtail.training.duration import parse_duration
from longtail.training.flags import TrainFlags, nest_flags, with_flags
from longtail.training.settings import resolve_settings


@with_flags(annotate_flag)
def tune(
    data: Annotated[str | None, Parameter(name="DATA")] = None,
    /,
    *,
    out: Path | None = None,
    trials: int | None = None,
    search: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    storage: str | None = None,
    study: str | None = None,
    config: Path | None = None,
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative="", show_default=False)] = (),
    **flags: Unpack[TrainFlags],
) -> int:
    """Search settings on validation images, train the best, and show what mattered.

    The same command goes on with a study. Several processes share one by its folder, several machines by --storage.

    Args:
        data: a folder, a CSV, or a name; see `RunConfig`.
        **flags: settings by their short names.
        out: The study's folder (default: runs/NAME-study).
        trials: At most so many trials in this process (default: as many as --time, 10m if not given, allows).
        search: A head, or from scratch a method, to search; give it once for each (default: the usual ones).
        storage: The URL of a database, such as postgresql://host/name (default: SQLite in the study's folder).
        study: The name of the study in the storage (default: that of its folder).
        config: A YAML file of settings.
        set_: Any setting, as key=value.
    """
    started = time.monotonic()
    check_optuna()
    minutes = parse_duration(flags.pop("time", None), "time")
    given = nest_flags({"data": data, **flags})
    settings, _, _ = resolve_settings(given, config=config, overrides=set_)
    from longtail.training.training_screen import TrainingScreen

    with TrainingScreen() as screen:
        screen.wait(f"looking at {settings.data}")  # torch takes seconds to start
        from longtail.study.tune import tune as run_study

        found = run_study(
            settings,
            out=out,
            minutes=minutes,
            named=flags,
            choices=search,
            trials=trials,
            storage=storage,
            name=study,
            callback=screen,
            started=started,
        )
    if found.run is not None:
        show_lines(summary(found.run))
    show(f"best:   trial {found.best.number} of {found.trials}, {found.best.value:.1%} on {found.judge}")
    show(f"study:  {found.path / 'study.html'}")
    return 0
