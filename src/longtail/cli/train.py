"""`longtail train DATA`."""

import time
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack, get_args, get_origin

from cyclopts import Parameter, Token

from longtail._errors import UsageError
from longtail._printable import show, show_lines
from longtail.cli.print_table import accuracy_lines, spread_lines
from longtail.training.flags import TrainFlags, nest_flags, with_flags
from longtail.training.settings import parse_value, resolve_settings

if TYPE_CHECKING:
    from longtail.training import Run


# What numbers are called in the help. The types themselves would be checked by pydantic in a program that imports it,
# and its errors are not ours.
_SHOWN: dict[Any, Any] = {int: type("int", (), {}), float: type("float", (), {})}
# Flags that the user may also refuse, where the data decides otherwise.
_BOTH_WAYS = {"flip"}


def _read_number(_: Any, tokens: Sequence[Token]) -> Any:
    """The number as it is written, to be checked with all settings: cyclopts would take 1.5 epochs for 2."""
    return parse_value(tokens[0].value, tokens[0].keyword or "")


def annotate_flag(name: str, hint: Any) -> Any:
    """What of a flag's type can be written on a command line."""
    kinds = [kind for kind in get_args(hint) if get_origin(kind) not in (Mapping, PathLike)]
    converter = _read_number if {int, float} & set(kinds) else None
    negative = f"--no-{name}" if name in _BOTH_WAYS else ""
    shown = Parameter(negative=negative, converter=converter, show_choices=converter is None)
    return Annotated[reduce(or_, [_SHOWN.get(kind, kind) for kind in kinds]), shown]


@with_flags(annotate_flag)
def train(
    data: Annotated[str | None, Parameter(name="DATA")] = None,
    /,
    *,
    out: Path | None = None,
    resume: str | None = None,
    config: Path | None = None,
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative="", show_default=False)] = (),
    budget: Literal["paper", "quick"] = "paper",
    seeds: int | None = None,
    accept_data_changes: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    dry_run: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    **flags: Unpack[TrainFlags],
) -> int:
    """Train on a data set, evaluate on its test images, and write the run's folder with a report.

    Args:
        data: a folder, a CSV, or a name; see `RunConfig`.
        **flags: settings by their short names.
        out: The run's folder (default: the first free runs/NAME-N).
        resume: Resume a run: its folder, or auto for --out where there is a checkpoint, and else start.
        config: A YAML file of settings, such as the config.yaml of a run.
        set_: Any setting, as key=value: --set optim.momentum=0.8 --set method.components=2
        budget: quick keeps a twentieth of the recipe's epochs.
        seeds: Train so many runs, from --seed on, and report their mean and spread.
        accept_data_changes: Resume although images changed: old ones stay in their split, new ones are trained on.
        dry_run: Check everything, print the resolved settings, and stop.
    """
    started = time.monotonic()
    given = nest_flags({"data": data, **flags})
    settings, folder, resumes = resolve_settings(
        given, out=out, resume=resume, config=config, overrides=set_, budget=budget
    )
    if dry_run:
        import yaml

        from longtail.training.plan_run import resolve_run
        from longtail.training.run_folder.write import RunFolder

        if folder is not None and not resumes:
            RunFolder(folder).check_unused()
        show(yaml.safe_dump(resolve_run(settings).as_dict(), sort_keys=False, allow_unicode=True), end="")
        return 0
    from longtail.training.training_screen import TrainingScreen

    with TrainingScreen() as screen:
        screen.wait(f"looking at {settings.data}")  # torch takes seconds to start
        if seeds is not None:
            if resume not in (None, "auto"):
                raise UsageError("--seeds goes on with --resume auto --out FOLDER, which holds all of them")
            from longtail.training.train_seeds import train_seeds

            group = train_seeds(settings, seeds, out=folder, resume=resumes, callback=screen, started=started)
            if screen.is_first_rank:
                show("\n".join(spread_lines(group.summary)))
                show(f"seeds: {group.path / 'seeds.html'}")
            return 0
        from longtail.training import train as run_training

        run = run_training(
            settings,
            out=folder,
            resume=resumes,
            callback=screen,
            started=started,
            accept_data_changes=accept_data_changes,
        )
    if screen.is_first_rank:
        show_lines(summary(run))
    return 0


def summary(run: "Run") -> list[str]:
    """What a run found, in a few lines."""
    advice = [f"advice: {line}" for line in run.advice]
    return [*accuracy_lines(run.evaluation), *advice, f"report: {run.path / 'report.html'}"]
