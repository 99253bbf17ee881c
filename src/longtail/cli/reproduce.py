"""`longtail reproduce [NAME]`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from longtail._errors import counted
from longtail._printable import show
from longtail.cli.print_table import print_table
from longtail.cli.screen import Status

if TYPE_CHECKING:
    from longtail.reproduction.estimate import Estimates
    from longtail.reproduction.plan import Plan
    from longtail.reproduction.run_outcome import EntryOutcome

_FLAG = Parameter(negative="")
_SEVERAL = Parameter(consume_multiple=True, negative="")


def reproduce(
    name: Annotated[str | None, Parameter(name="NAME")] = None,
    /,
    *,
    budget: Literal["quick", "paper"] = "quick",
    reading: Literal["measured", "appendix", "text"] | None = None,
    rows: Annotated[tuple[str, ...], _SEVERAL] = (),
    seeds: Annotated[tuple[int, ...], _SEVERAL] = (),
    data: str | None = None,
    model: str | None = None,
    epochs: int | None = None,
    root: Path | None = None,
    out: Path | None = None,
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    dry_run: Annotated[bool, _FLAG] = False,
    table_only: Annotated[bool, _FLAG] = False,
    json: Annotated[bool, _FLAG] = False,
) -> int:
    """Rerun the paper's tables and figures, and print our numbers beside the paper's.

    Without NAME, list the tables and how long each would take here. With NAME, say how long it will take, then run it.
    The same command resumes what was stopped and repeats nothing that is finished.

    Parameters
    ----------
    name
        components, mixtures, backbones, rebalancing or datasets.
    budget
        quick: small network, small images, few epochs. paper: the paper's setting.
    reading
        How compound_bn reads its paper, in every row: measured (the default, which departs from the paper where that
        helps), appendix (Algorithm 2 of the appendix) or text (the order of steps in the main text).
    rows
        Only these rows, data sets, or both: --rows baseline 'cbn*@cifar10-lt:100'.
    seeds
        One run of each row per seed: --seeds 0 1 2 (default: 0 for quick, 0 1 2 for paper).
    data
        Another data set instead of the paper's.
    model
        Another backbone for every row.
    epochs
        Another number of epochs for every run.
    root
        The folder of the named data sets (default: LONGTAIL_DATA, else the user's cache folder).
    out
        The folder of the runs and of the table (default: runs/reproduce/NAME-BUDGET[-reading-READING]).
    set_
        Any setting for every run, as key=value, as in `longtail train`.
    dry_run
        Print the commands of the runs and their time, and stop.
    table_only
        Print the table from finished runs, without training.
    json
        Print JSON.
    """
    from longtail.reproduction.plan import check_folders, make_plan
    from longtail.reproduction.tables import list_tables, load_table

    flags: dict[str, Any] = {
        "data": data,
        "root": None if root is None else str(root),
        "model": {"name": model},
        "epochs": epochs,
    }
    tables = [load_table(each) for each in ([name] if name else list_tables())]
    plans = [
        make_plan(
            table,
            budget=budget,
            seeds=seeds,
            out=out,
            rows=rows if name else (),
            reading=reading,
            flags=flags,
            overrides=set_,
        )
        for table in tables
    ]
    if name is None:
        return _list(plans, as_json=json)
    plan = plans[0]
    check_folders(plan)
    if table_only:
        return _show(plan, {}, as_json=json)
    _refuse_several_ranks()
    with Status() as talk:
        from longtail.reproduction.estimate import Estimates

        estimates = Estimates(talk.say)
        needs = _needs(plan, estimates)
        _announce(plan, estimates, dry=dry_run, as_json=json)
    if dry_run:
        return 0
    _carry_out(plan, needs)
    return _show(plan, needs, as_json=json)


def _carry_out(plan: "Plan", needs: dict[str, str]) -> None:
    from longtail.reproduction.carry_out import carry_out, read_failure
    from longtail.reproduction.plan import PlannedRun
    from longtail.reproduction.run_outcome import read_outcome
    from longtail.reproduction.write_outcome import write_outcome
    from longtail.training.training_screen import TrainingScreen

    names = {
        run.folder: f"{planned.entry.name} on {planned.entry.data}" for planned in plan.entries for run in planned.runs
    }
    last: list[PlannedRun] = []
    with TrainingScreen() as screen:

        def begin(run: PlannedRun) -> TrainingScreen:
            last[:] = [run]
            place = plan.runs.index(run) + 1
            screen.say(f"run {place} of {len(plan.runs)}: {names[run.folder]}, seed {run.seed}")
            return screen

        def end() -> None:
            screen.finish()
            failure = read_failure(last[0].folder)
            if failure is not None:
                screen.say(f"failed: {failure.message}; continuing with the next run")
            write_outcome(plan, read_outcome(plan, needs))

        carry_out(plan, skip=lambda run: run.config.data in needs, callback=begin, after_each=end)


def _needs(plan: "Plan", estimates: "Estimates") -> dict[str, str]:
    """A remark for each missing data set; raise if all are missing."""
    from longtail._errors import DataError
    from longtail.data.open_dataset import data_root

    missing = {run.config.data: error for run in plan.runs if (error := estimates.missing(run))}
    if plan.runs and len(missing) == len({run.config.data for run in plan.runs}):
        first = next(iter(missing.values()))
        raise DataError(
            f"{plan.table.name} needs {', '.join(missing)}: {first.what}",
            "there is nothing to run without data",
            first.fix,
            code=first.code,
            paths=first.paths,
        )
    roots = {run.config.data: data_root(run.config.root) for run in plan.runs}
    return {data: f"needs {data} in {roots[data]}" for data in missing}


def _announce(plan: "Plan", estimates: "Estimates", *, dry: bool, as_json: bool) -> None:
    """Say what will be run and how long it takes: on stderr, or on stdout for a dry run."""
    from longtail.reproduction.estimate import in_words, total_seconds
    from longtail.reproduction.plan import command_of
    from longtail.reproduction.write_outcome import how_it_was_made

    total, unknown = total_seconds(plan, estimates)
    if dry and as_json:
        _print_json(
            {
                "seconds": total,
                "unknown": unknown,
                "runs": [{"command": command_of(run), "seconds": estimates.seconds(run)} for run in plan.runs],
            }
        )
        return
    rows = []
    for planned in plan.entries:
        times = [estimates.seconds(run) for run in planned.runs]
        time = None if None in times else sum(seconds for seconds in times if seconds is not None)
        if planned.runs:
            shown = f"needs {planned.entry.data}" if estimates.missing(planned.runs[0]) else in_words(time)
            rows.append((planned.entry.name, planned.entry.data, str(len(planned.runs)), shown))
    print_table(("row", "data", "runs", "time"), rows, stderr=not dry)
    stream = sys.stdout if dry else sys.stderr
    show("\n".join(how_it_was_made(plan)), file=stream)
    if dry:
        show("\n".join(command_of(run) for run in plan.runs))
    if total == 0 and not unknown:
        done = "the run is finished" if len(plan.runs) == 1 else f"all {len(plan.runs)} runs are finished"
        show(done, file=stream)
        return
    left = f", about {in_words(total)} left" if total else ""
    aside = f"; {counted(unknown, 'run')} not included" if unknown else ""
    show(f"{counted(len(plan.runs), 'run')}{left}, estimated from a few steps of each kind{aside}", file=stream)


def _list(plans: "list[Plan]", *, as_json: bool) -> int:
    """List the tables, and how long each takes."""
    with Status() as talk:
        from longtail.reproduction.estimate import Estimates, in_words, total_seconds

        estimates = Estimates(talk.say)
        rows: list[dict[str, Any]] = []
        for plan in plans:
            seconds, unknown = total_seconds(plan, estimates)
            missing = dict.fromkeys(run.config.data for run in plan.runs if estimates.missing(run))
            row = {"name": plan.table.name, "about": plan.table.title, "sources": plan.table.sources}
            rows.append(
                row | {"runs": len(plan.runs), "seconds": seconds, "unknown": unknown, "missing": list(missing)}
            )
    if as_json:
        _print_json(rows)
        return 0
    lines = [
        (
            row["name"],
            f"{row['about']} ({', '.join(row['sources'])})",
            str(row["runs"]),
            in_words(row["seconds"]) if row["unknown"] < row["runs"] else "?",
            f"needs {', '.join(row['missing'])}" if row["missing"] else "",
        )
        for row in rows
    ]
    print_table(("name", "what", "runs", "time", ""), lines)
    show(
        f"budget {plans[0].budget}; times are estimated from a few steps of each kind of run on this device, without "
        "runs whose data is missing"
    )
    return 0


def _show(plan: "Plan", needs: dict[str, str], *, as_json: bool) -> int:
    """Write and print the outcome; the exit code is that of the first run that failed."""
    from longtail.reproduction.run_outcome import exit_code, read_outcome
    from longtail.reproduction.write_outcome import HEADER, make_page, write_outcome
    from longtail.reproduction.write_outcome import as_json as encode

    outcomes: list[EntryOutcome] = read_outcome(plan, needs)
    write_outcome(plan, outcomes)
    if as_json:
        _print_json(encode(plan, outcomes))
        return exit_code(outcomes)
    page = make_page(plan, outcomes)
    show(page.title)
    print_table(HEADER, page.lines)
    for number, note in enumerate(page.footnotes, start=1):
        show(f"[{number}] {note}")
    show("\n".join(page.made))
    show(f"table: {plan.out / 'reproduction.md'}, {plan.out / 'reproduction.json'}")
    return exit_code(outcomes)


def _print_json(content: Any) -> None:
    import json

    show(json.dumps(content, indent=1))


def _refuse_several_ranks() -> None:
    import os

    from longtail._errors import UsageError

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError(
            "longtail reproduce runs on one device, but was started on several",
            "it does many small runs, one after another",
            "start the commands that --dry-run prints with torchrun, then use --table-only",
        )
