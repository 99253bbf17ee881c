"""From a table to ordinary runs: settings, folders, and the `longtail train` command of each.

Settings come, highest priority first, from the user, from `quick` of the table with that budget, from the row, and from
the recipe of its data set. `LONGTAIL_*` variables are ignored, since a reproduction must not depend on them. Every run
uses one device.

Rows that become the same run, as all columns of a table do with `--data digits-lt`, are run once, as the first of
them. The paper's number is shown only for a run on the paper's data set.
"""

import dataclasses
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from longtail._errors import UsageError
from longtail.reproduction.tables import Entry, Table
from longtail.training.run_config import RunConfig, build_config
from longtail.training.settings import (
    FREE_ON_RESUME,
    Settings,
    check_settings,
    layer_settings,
    merge,
    parse_override,
    read_config,
    without_none,
)

BUDGETS = ("quick", "paper")
SEEDS = {"quick": (0,), "paper": (0, 1, 2)}


@dataclass(frozen=True)
class PlannedRun:
    """One run: its seed, its settings and its folder."""

    seed: int
    config: RunConfig
    folder: Path


@dataclass(frozen=True)
class PlannedEntry:
    """An entry of the table with its runs, one per seed; none for a method of another paper."""

    entry: Entry
    runs: tuple[PlannedRun, ...] = ()


@dataclass(frozen=True)
class Plan:
    """All runs of a table.

    Args:
        table: what is reproduced.
        budget: "quick" or "paper".
        seeds: the seeds of each entry's runs.
        out: the folder of all runs.
        entries: in the order of the table.
        remarks: how the plan differs from the table.
    """

    table: Table
    budget: str
    seeds: tuple[int, ...]
    out: Path
    entries: tuple[PlannedEntry, ...]
    remarks: tuple[str, ...] = field(default=())

    @property
    def runs(self) -> list[PlannedRun]:
        """All runs, in order."""
        return [run for planned in self.entries for run in planned.runs]


def make_plan(
    table: Table,
    *,
    budget: str = "quick",
    seeds: Sequence[int] = (),
    out: Path | None = None,
    rows: Sequence[str] = (),
    reading: str | None = None,
    flags: Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
) -> Plan:
    """Choose rows and resolve the settings of each run.

    Args:
        table: what to reproduce.
        budget: "paper", or "quick", for a CPU.
        seeds: the seeds of each row's runs; defaults to the budget's.
        out: the folder of all runs.
        rows: patterns of rows, data sets, sources or keys; defaults to all rows.
        reading: the reading of compound_bn in every row, also as the base of another method; defaults to the method's.
        flags: nested settings for every run; None means not given.
        overrides: `key=value` texts for every run.
    """
    if budget not in BUDGETS:
        raise UsageError(f"--budget must be {' or '.join(BUDGETS)}, got {budget!r}")
    given = without_none(flags or {})
    for text in overrides:
        given = merge(given, parse_override(text))
    for name in ("seed", "devices"):
        if name in given:
            raise UsageError(f"--set {name} cannot be used here", "", _INSTEAD[name])
    seeds = tuple(dict.fromkeys(seeds)) or SEEDS[budget]
    out = out or Path("runs") / "reproduce" / f"{table.name}-{budget}{f'-reading-{reading}' if reading else ''}"
    chosen = _on(_choose(table, rows), given.get("data"))
    planned: list[PlannedEntry] = []
    known: set[str] = set()
    for entry in chosen:
        runs = () if entry.settings is None else tuple(_plan_run(entry, seed, budget, out, given) for seed in seeds)
        if reading:
            runs = tuple(_read_as(run, reading) for run in runs)
        names = {str(runs[0].folder), repr(runs[0].config)} if runs else {entry.source + entry.key}
        if not names & known:
            planned.append(PlannedEntry(entry, runs))
        known |= names
    remarks = []
    if len(planned) < len(chosen):
        repeated = len(chosen) - len(planned)
        same = "row is the same run as another and is" if repeated == 1 else "rows are the same runs as others and are"
        remarks.append(f"{repeated} {same} left out")
    if chosen and not any(entry.data == given.get("data", entry.data) for entry in _choose(table, rows)):
        remarks.append(f"the paper has no numbers on {given['data']} to compare with")
    return Plan(table, budget, seeds, out, tuple(planned), tuple(remarks))


_INSTEAD = {
    "seed": "use --seeds, for example --seeds 0 1 2",
    "devices": "each run uses one device; to use more, start the commands that --dry-run prints with torchrun",
}


def command_of(run: PlannedRun) -> str:
    """The `longtail train` command of the same run."""
    config = run.config.as_dict()
    recipe = build_config(layer_settings({"data": config["data"], "method": config["method"]["name"]}, environment={}))
    arguments = ["longtail", "train", config["data"], "--out", str(run.folder), "--resume", "auto"]
    for key, value in _differences(recipe.as_dict(), config):
        if key == "method.name":
            arguments += ["--method", value]
        elif key != "data":
            shown = yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n...\n").strip()
            arguments += ["--set", f"{key}={shown}"]
    return shlex.join(arguments)


def check_folders(plan: Plan) -> None:
    """Refuse folders that hold runs with other settings, whose numbers do not belong in this table."""
    for run in plan.runs:
        if not (run.folder / "config.yaml").is_file():
            continue
        there = build_config(read_config(run.folder), str(run.folder)).as_dict()
        try:
            check_settings(
                there, _with_resolved(run.config.as_dict(), there), FREE_ON_RESUME - {"epochs", "keep", "patience"}
            )
        except UsageError as error:
            difference = error.what.removeprefix("a resumed run cannot change ")
            raise UsageError(
                f"{run.folder} holds a run with other settings: {difference}",
                "its numbers do not belong in this table",
                "choose another --out, or use the flags of that run",
            ) from error


def _with_resolved(asked: Settings, there: Settings) -> Settings:
    """The settings asked for, where they leave something open with what a run has resolved it to."""
    left_open = {name: there[name] for name, value in asked.items() if value in (None, "auto")}
    return merge({"method": there["method"]}, asked) | left_open


def _choose(table: Table, rows: Sequence[str]) -> list[Entry]:
    for pattern in rows:
        if not any(entry.matches(pattern) for entry in table.entries):
            raise UsageError(
                f"--rows {pattern} matches no row of {table.name}",
                f"its rows are {', '.join(dict.fromkeys(entry.row for entry in table.entries))}; "
                f"its data sets {', '.join(dict.fromkeys(entry.data for entry in table.entries))}",
                f"name rows, data sets or both: --rows {table.entries[0].row} '{table.entries[0].key}'",
            )
    return [entry for entry in table.entries if not rows or any(entry.matches(pattern) for pattern in rows)]


def _on(entries: list[Entry], data: str | None) -> list[Entry]:
    """The entries on `data`; if there are none, those that we run, moved to `data` without the paper's numbers."""
    if data is None:
        return entries
    there = [entry for entry in entries if entry.data == data]
    return there or [
        dataclasses.replace(entry, data=data, paper=dict.fromkeys(entry.paper), notes=())
        for entry in entries
        if entry.settings is not None
    ]


def _plan_run(entry: Entry, seed: int, budget: str, out: Path, given: Mapping[str, Any]) -> PlannedRun:
    settings = merge(entry.settings or {}, entry.quick if budget == "quick" else {})
    settings = merge(settings, {"data": entry.data, "seed": seed, "devices": 1})
    config = build_config(layer_settings(merge(settings, given), environment={}, budget=budget))
    return PlannedRun(seed, config, out / _as_name(entry.data) / _as_name(entry.row) / f"seed-{seed}")


def compound_settings(config: RunConfig) -> dict[str, Any] | None:
    """What a run gives to compound_bn, as its method or as the base of another one; None if it has none."""
    if config.method["name"] == "compound_bn":
        return {name: value for name, value in config.method.items() if name != "name"}
    return dict(config.method.get("base_settings") or {}) if config.method.get("base") == "compound_bn" else None


def _read_as(run: PlannedRun, reading: str) -> PlannedRun:
    """The run with this reading of compound_bn, if it has one."""
    settings = compound_settings(run.config)
    if settings is None:
        return run
    read = settings | {"reading": reading}
    changed: dict[str, Any] = {"base_settings": read} if "base" in run.config.method else read
    return dataclasses.replace(run, config=dataclasses.replace(run.config, method={**run.config.method, **changed}))


def _as_name(text: str) -> str:
    """A text as the name of a folder."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-") or "data"


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """The settings of `new` that differ from `old`, by dotted key; mappings among a method's arguments stay whole."""
    found: list[tuple[str, Any]] = []
    for name, value in new.items():
        before = old.get(name)
        if name in ("method", "model", "optim") and not prefix and isinstance(value, Mapping):
            found += _differences(before or {}, value, f"{name}.")
        elif value != before or f"{prefix}{name}" == "method.name":
            found.append((f"{prefix}{name}", value))
    return found
