"""The tables of docs/evidence-tables.md, from the records of this study.

    python -m benchmarks.studies.compound_bn.evidence            # rewrite the tables between the marks
    python -m benchmarks.studies.compound_bn.evidence --check    # say whether they are up to date, and touch nothing
    python -m benchmarks.studies.compound_bn.evidence --print    # every setting that was run

A table has all runs of one setting (data, model, epochs, batch, learning rate, weight decay): balanced accuracy of the
last epoch in percent, mean and standard deviation over the seeds, and the difference to the baseline, paired by seed,
with the 95 % interval of Student's t from three seeds on. Components are the effective ones, and Distance that between
them in deviations a channel, both means over the layers. In the page a table stands between `<!-- table NAME -->` and
`<!-- end -->`. Other words than `table` make other tables:

- `ladder`: the rows with the default reading alone.
- `saturation`: the baseline by epochs.
- `tuning`: baseline and default by learning rate and weight decay.
- `compute`: the default against other numbers of components, and the baseline by epochs.
- `adjusted`: all rows by the strength of a post-hoc logit adjustment, with their differences as trained to the
  baseline at the strength that is best for it on held-out images.
- `use`: what `mixture_use` measured.
"""

import argparse
import math
import re
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scipy.stats import t as student

from benchmarks.record import ROOT
from benchmarks.studies.compound_bn.ladder import Runs, Setting, read_runs

ADJUSTED, USED = (Path(__file__).parent / f"{name}.jsonl" for name in ("adjusted", "mixture_use"))
PAGE = ROOT / "docs" / "evidence-tables.md"
TITLES = {
    "baseline": "Baseline (BN)",
    "sbn": "+SBN",
    "cbn": "+CBN",
    "cbn_sbn": "+CBN+SBN",
    "cbn_sbn_dpl": "+CBN+SBN+DPL",
    "balanced_statistics": "BN, class-balanced statistics",
    "bn_rs": "BN, DT+RS",
    "bn_rw": "BN, DT+RW",
    "bn_rs_rw": "BN, DT+RS+RW",
    "cbn_rs": "+CBN, DT+RS",
    "cbn_rw": "+CBN, DT+RW",
    "cbn_rs_rw": "+CBN, DT+RS+RW",
    "cbn_sbn_dpl_rs": "+CBN+SBN+DPL, DT+RS",
    "cbn_sbn_dpl_rw": "+CBN+SBN+DPL, DT+RW",
    "cbn_sbn_dpl_rs_rw": "+CBN+SBN+DPL, DT+RS+RW",
}
MIXTURES = {"default_one": "M = 1 (batch norm, same passes)", "default_two": "M = 2", "default_eight": "M = 8"}
GROUPS = ("many", "medium", "few")
MIXTURE = {"mixture/effective_components": "Components", "mixture/distance": "Distance"}


def table(rows: dict[tuple[str, str], dict[int, dict[str, Any]]]) -> list[str]:
    """One setting as Markdown: the baseline first, then by row as in the paper."""
    base = _balanced(rows.get(("baseline", "measured"), {}))
    groups = [
        g
        for g in GROUPS
        if any(f"accuracy_{g}" in r["metrics"]["accuracy"] for runs in rows.values() for r in runs.values())
    ]
    mixtures = {name: title for name, title in MIXTURE.items() if any(_mixture(runs, name) for runs in rows.values())}
    names = ["Row", "Reading", "Seeds", "Balanced", *(g.title() for g in groups), "To the baseline", "95 % interval"]
    names += mixtures.values()
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for row, reading in _ordered(rows):
        runs = rows[row, reading]
        values = _balanced(runs)
        cells = [
            TITLES[row],
            "" if reading == "measured" else reading,
            str(len(runs)),
            _spread(values.values()),
        ]
        if len(values) < len(runs):
            cells[-1] = f"{cells[-1]} ({len(runs) - len(values)} diverged)".strip()
        cells += [_spread(_percent(runs, f"accuracy_{g}").values()) for g in groups]
        pairs = [values[seed] - base[seed] for seed in values if seed in base]
        cells += ["", ""] if row == "baseline" and reading == "measured" else _difference(pairs)
        cells += [_spread(_mixture(runs, name), digits=2) for name in mixtures]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _ordered(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The rows in the order of the paper, the default reading first, then by name."""
    names = list(TITLES)
    return sorted(rows, key=lambda key: (names.index(key[0]), key[1] != "measured", key[1]))


def _mixture(runs: dict[int, dict[str, Any]], name: str) -> list[float]:
    return [run["metrics"]["mixture"][name] for run in runs.values() if run["metrics"]["mixture"].get(name) is not None]


def _balanced(runs: dict[int, dict[str, Any]]) -> dict[int, float]:
    return _percent(runs, "balanced")


def _percent(runs: dict[int, dict[str, Any]], metric: str) -> dict[int, float]:
    """By seed; a run that diverged has none."""
    accuracies = {seed: run["metrics"]["accuracy"] for seed, run in runs.items()}
    return {seed: 100 * accuracy[metric] for seed, accuracy in accuracies.items() if metric in accuracy}


def _spread(values: Iterable[float], digits: int = 1) -> str:
    numbers = list(values)
    if not numbers:
        return ""
    mean = f"{statistics.fmean(numbers):.{digits}f}"
    return f"{mean} ± {statistics.stdev(numbers):.{digits}f}" if len(numbers) > 1 else mean


def _difference(pairs: list[float]) -> list[str]:
    if not pairs:
        return ["", ""]
    mean = statistics.fmean(pairs)
    if len(pairs) < 3:  # two seeds may be alike by accident, and their interval then looks like a finding
        return [_signed(mean), ""]
    half = student.ppf(0.975, len(pairs) - 1) * statistics.stdev(pairs) / math.sqrt(len(pairs))
    return [_signed(mean), f"{_signed(mean - half)} to {_signed(mean + half)}"]


def _signed(value: float) -> str:
    """To one digit, with the sign of the value itself: -0.02 is "-0.0", so an interval shows on which side it ends."""
    return f"{value + 0.0:+.1f}"  # -0.0 + 0.0 is 0.0


def saturation(runs: Runs, like: Setting) -> list[str]:
    """The baseline of a setting at every number of epochs that was run."""
    lines = ["| Epochs | Seeds | Balanced | To the row above |", "|---|---|---|---|"]
    before: dict[int, float] = {}
    for setting in sorted((s for s in runs if s._replace(epochs=0) == like._replace(epochs=0)), key=lambda s: s.epochs):
        values = _balanced(runs[setting].get(("baseline", "measured"), {}))
        if values:
            pairs = [values[seed] - before[seed] for seed in values if seed in before]
            lines.append(f"| {setting.epochs} | {len(values)} | {_spread(values.values())} | {_difference(pairs)[0]} |")
            before = values
    return lines


def compute(runs: Runs, like: Setting) -> list[str]:
    """The default of a setting against other numbers of components, and the baseline at all epochs that were run."""
    ours = runs[like]["cbn_sbn_dpl", "measured"]
    values = _balanced(ours)
    lines = [
        "| | Epochs | Seeds | Balanced | Minutes | compound_bn less it | 95 % interval |",
        "|---" * 7 + "|",
        f"| {' | '.join(('compound_bn', *_cost(like, ours), '', ''))} |",
    ]
    others = [(f"compound_bn, {title}", like, "cbn_sbn_dpl", reading) for reading, title in MIXTURES.items()]
    same = sorted((s for s in runs if s._replace(epochs=0) == like._replace(epochs=0)), key=lambda s: s.epochs)
    others += [(TITLES["baseline"], setting, "baseline", "measured") for setting in same]
    for title, setting, row, reading in others:
        found = runs[setting].get((row, reading), {})
        base = _balanced(found)
        if base:
            pairs = [values[seed] - base[seed] for seed in values if seed in base]
            lines.append(f"| {' | '.join((title, *_cost(setting, found), *_difference(pairs)))} |")
    return lines


def _cost(setting: Setting, runs: dict[int, dict[str, Any]]) -> tuple[str, ...]:
    values = _balanced(runs)
    return str(setting.epochs), str(len(values)), _spread(values.values()), _minutes(runs)


def _minutes(runs: dict[int, dict[str, Any]]) -> str:
    return f"{statistics.median(run['metrics']['minutes'] for run in runs.values()):.0f}"


def tuning(runs: Runs, like: Setting) -> list[str]:
    """The baseline and the default of a setting at every learning rate and weight decay that was run."""
    lines = ["| lr | Weight decay | Seeds | Baseline (BN) | Seeds | compound_bn |", "|---" * 6 + "|"]
    for setting in sorted(s for s in runs if s._replace(lr=0, weight_decay=0) == like._replace(lr=0, weight_decay=0)):
        found = [_balanced(runs[setting].get((row, "measured"), {})) for row in ("baseline", "cbn_sbn_dpl")]
        if any(found):
            cells = [part for values in found for part in (str(len(values) or ""), _spread(values.values()))]
            lines.append(f"| {setting.lr:g} | {setting.weight_decay:g} | {' | '.join(cells)} |")
    return lines


def adjusted(runs: Runs, like: Setting) -> list[str]:
    """The rows of a setting by the strength of a post-hoc logit adjustment, as `adjusted` measured it."""
    held_out = runs.get(like._replace(data=like.data.replace(":", "-val:")), {}).get(("baseline", "measured"), {})
    rows = runs[like]
    strengths = list(next(iter(rows["baseline", "measured"].values()))["metrics"]["balanced"])
    best = (
        max(strengths, key=lambda s: sum(run["metrics"]["balanced"][s] for run in held_out.values()))
        if held_out
        else "0.0"
    )
    base = {seed: 100 * run["metrics"]["balanced"][best] for seed, run in rows["baseline", "measured"].items()}
    names = ["Row", "Reading", "Seeds", *strengths, f"At 0.0 to the baseline at {best}", "95 % interval"]
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for row, reading in _ordered(rows):
        found = rows[row, reading]
        cells = [TITLES[row], "" if reading == "measured" else reading, str(len(found))]
        cells += [
            f"{100 * statistics.fmean(run['metrics']['balanced'][s] for run in found.values()):.1f}" for s in strengths
        ]
        cells += _difference(
            [100 * found[seed]["metrics"]["balanced"]["0.0"] - base[seed] for seed in found if seed in base]
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def use(runs: Runs, like: Setting) -> list[str]:
    """The rows of a setting by what they make of their mixture, as `mixture_use` measured it."""
    names = ("as trained", "ignoring the point", "sure", "true group")
    heads = ["Row", "Reading", "Seeds", *(name.capitalize() for name in names), "Bits about the class"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row, reading in _ordered(runs[like]):
        found = [run["metrics"] for run in runs[like][row, reading].values()]
        cells = [TITLES[row], "" if reading == "measured" else reading, str(len(found))]
        cells += [_spread(100 * run[name] for run in found) for name in names]
        lines.append(f"| {' | '.join([*cells, _spread((run['bits'] for run in found), digits=2)])} |")
    return lines


def fill(page: str, runs: Runs, adjusted_runs: Runs | None = None, used_runs: Runs | None = None) -> str:
    """The page with each table between its marks made anew, of the ladder's runs and what was measured of them."""
    named = {str(setting): setting for setting in runs}

    def made(match: re.Match[str]) -> str:
        kind, name = match["kind"], match["name"]
        if name not in named:
            raise SystemExit(f"the page asks for {name!r}, of which there is no run; there are:\n" + "\n".join(named))
        setting = named[name]
        if kind == "table":
            lines = table(runs[setting])
        elif kind == "ladder":
            lines = table({key: found for key, found in runs[setting].items() if key[1] == "measured"})
        elif kind == "adjusted":
            lines = adjusted(adjusted_runs or {}, setting)
        elif kind == "use":
            lines = use(used_runs or {}, setting)
        else:
            lines = {"saturation": saturation, "compute": compute, "tuning": tuning}[kind](runs, setting)
        return "\n".join([f"<!-- {kind} {name} -->", "", *lines, "", "<!-- end -->"])

    mark = r"<!-- (?P<kind>table|ladder|saturation|compute|tuning|adjusted|use) (?P<name>[^>]+?) -->.*?<!-- end -->"
    return re.sub(mark, made, page, flags=re.DOTALL)


def main() -> None:
    """Fill the page, check it, or print all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit 1 if the page is not up to date")
    parser.add_argument("--print", action="store_true", dest="show", help="print a table for every setting")
    arguments = parser.parse_args()
    runs = read_runs()
    if arguments.show:
        for setting, rows in runs.items():
            print(f"\n{setting}\n", *table(rows), sep="\n")
        return
    old = PAGE.read_text()
    new = fill(old, runs, read_runs(ADJUSTED), read_runs(USED))
    if arguments.check:
        sys.exit(
            0 if new == old else f"docs/evidence-tables.md is not made of these records; run python -m {__spec__.name}"
        )
    PAGE.write_text(new)


if __name__ == "__main__":
    main()
