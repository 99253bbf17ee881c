"""The league: each arm beside balanced softmax with its interval, and accuracy against the compute that it took."""

import statistics
from collections.abc import Callable, Mapping
from functools import partial

from benchmarks.figures.canvas import Canvas
from benchmarks.record import read_records
from benchmarks.studies.league.protocol import TRACKS
from benchmarks.studies.league.run import RESULTS
from benchmarks.studies.league.table import REFERENCE, TITLES, Records, accuracies, beside_reference, runs_by_arm

_LEFT, _RIGHT, _ROW = 150.0, 410.0, 22.0
_COMPOUND = {"compound_bn", "cbn"}


def league_figures() -> dict[str, Callable[[], str]]:
    """The pictures that the records allow, by name: those of sets on which the reference and another arm have runs."""
    records = read_records(RESULTS)
    found: dict[str, Callable[[], str]] = {}
    for track, shared in TRACKS.items():
        for name in shared.sets:
            runs = runs_by_arm(records, track, name)
            if REFERENCE in runs and len(runs) > 1:
                place = f"league_{track}_{name.replace('-', '_')}"
                found[place] = partial(forest, runs, f"{name}, {TITLES[track]}")
                found[f"{place}_compute"] = partial(against_compute, runs, f"{name}, {TITLES[track]}")
    return found


def forest(runs: Mapping[str, Records], where: str) -> str:
    """Each arm's difference to the reference after everybody's adjustment, with its 95 % interval."""
    rows = {arm: beside_reference(own, runs[REFERENCE]) for arm, own in runs.items() if arm != REFERENCE}
    rows[REFERENCE] = (0.0, 0.0, 0.0)
    order = sorted(rows, key=lambda arm: -rows[arm][0])
    low, high = min(row[1] for row in rows.values()), max(row[2] for row in rows.values())
    unit = (_RIGHT - _LEFT) / max(high - low, 1e-9)
    zero = _LEFT - low * unit
    canvas = Canvas(
        92 + _ROW * len(order),
        f"Who is ahead: {where}",
        f"Differences in balanced accuracy to {REFERENCE}, all after a logit adjustment, with 95 % intervals. "
        f"From the first to the last: {', '.join(order)}.",
    )
    canvas.text(16, 48, "points beside balanced softmax, everybody's logits adjusted", kind="quiet")
    bottom = 62 + _ROW * len(order)
    canvas.rule(zero, 58, zero, bottom, "stroke grey")
    for place, arm in enumerate(order):
        y = 72 + _ROW * place
        mean, start, end = rows[arm]
        kind = "plain" if arm in _COMPOUND else "ours"
        canvas.text(_LEFT - 10, y + 4, arm, anchor="end", kind="quiet" if arm == REFERENCE else "")
        canvas.rule(zero + unit * start, y, zero + unit * end, y, f"stroke {kind}")
        canvas.dot(zero + unit * mean, y, "grey" if arm == REFERENCE else kind)
        if arm != REFERENCE:
            canvas.text(464, y + 4, f"{mean:+.1f}", anchor="end", kind=kind)
    canvas.text(zero, bottom + 18, "0", anchor="middle", kind="quiet")
    return canvas.svg()


def against_compute(runs: Mapping[str, Records], where: str) -> str:
    """Adjusted balanced accuracy against core-minutes of a run; names stand beside the points that lead."""
    points = {
        arm: (statistics.fmean(accuracies(own, "core_minutes")), 100 * statistics.fmean(accuracies(own, "adjusted")))
        for arm, own in runs.items()
    }
    most = 1.1 * max(minutes for minutes, _ in points.values())
    lowest, highest = min(value for _, value in points.values()) - 1, max(value for _, value in points.values()) + 1
    left, right, top, bottom = 52.0, 448.0, 66.0, 296.0
    canvas = Canvas(
        344,
        f"Accuracy against compute: {where}",
        "Balanced accuracy after a logit adjustment against the core-minutes of a run. The best arms are named.",
    )
    canvas.text(16, 48, "balanced accuracy, logits of all adjusted, in per cent", kind="quiet")
    canvas.rule(left, bottom, right, bottom, "stroke grey")
    canvas.rule(left, top, left, bottom, "stroke grey")
    for mark in range(5):
        minutes, value = most * mark / 4, lowest + (highest - lowest) * mark / 4
        canvas.text(left + (right - left) * mark / 4, bottom + 20, f"{minutes:.1f}", anchor="middle", kind="quiet")
        canvas.text(left - 8, bottom - (bottom - top) * mark / 4 + 4, f"{value:.1f}", anchor="end", kind="quiet")
    named = sorted(points, key=lambda arm: -points[arm][1])[:2] + [arm for arm in points if arm in _COMPOUND]
    for arm, (minutes, value) in points.items():
        x = left + (right - left) * minutes / most
        y = bottom - (bottom - top) * (value - lowest) / (highest - lowest)
        kind = "plain" if arm in _COMPOUND else "ours"
        canvas.dot(x, y, kind)
        if arm in named:
            end = x > 0.7 * right
            canvas.text(x + (-8 if end else 8), y + 4, arm, anchor="end" if end else "start", kind=kind)
    canvas.text((left + right) / 2, bottom + 40, "core-minutes of a run", anchor="middle", kind="quiet")
    return canvas.svg()
