"""The page of a study: what was tried, what it scored, and which setting mattered."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from markupsafe import Markup

from longtail.evaluation.report.render import NARROW, WIDE, render_page
from longtail.evaluation.report.svg import (
    Panel,
    box,
    line,
    number,
    path,
    percent,
    shorten,
    svg,
    text,
    ticks,
    x_axis,
    y_axis,
)

_SHOWN = 200


@dataclass(frozen=True)
class StudyTrial:
    """A trial: its state (complete, pruned, failed), its score or the last before it was pruned, and its values."""

    number: int
    state: str
    value: float | None
    params: Mapping[str, Any]
    seconds: float | None = None
    error: str = ""


@dataclass(frozen=True)
class StudyRecord:
    """A study.

    Args:
        title: its name.
        data: that it was made on.
        judge: which images scored the trials.
        best: the number of the best trial.
        run: the folder of the best run, beside the page.
        trials: all that are over.
        importances: shares of each value in how scores differ, for groups of trials.
        choices: head or method, trials finished, tried, median and best score; None where none is finished.
    """

    title: str
    data: str
    judge: str
    best: int
    run: str
    trials: Sequence[StudyTrial]
    importances: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    choices: Sequence[tuple[str, int, int, float | None, float | None]] = ()


def render_study(record: StudyRecord) -> str:
    """The page, as the text of an HTML file."""
    done = [trial for trial in record.trials if trial.value is not None and trial.state == "complete"]
    best = next((trial for trial in record.trials if trial.number == record.best), None)
    ranked = sorted(record.trials, key=lambda trial: (trial.state != "complete", -(trial.value or 0.0), trial.number))
    return render_page(
        "study.html",
        data=json.dumps(asdict(record), ensure_ascii=False, default=str).replace("NaN", "null"),
        record=record,
        best=best,
        finished=len(done),
        pruned=sum(trial.state == "pruned" for trial in record.trials),
        failed=sum(trial.state == "failed" for trial in record.trials),
        history=[history_chart(record.trials, width=width) for width in (WIDE, NARROW)] if len(done) > 1 else None,
        importances={
            name: [importance_chart(shares, width=width) for width in (WIDE, NARROW)]
            for name, shares in record.importances.items()
        },
        ranked=ranked[:_SHOWN],
        shown=shown,
    )


def shown(params: Mapping[str, Any]) -> str:
    """What a trial chose, for people: the head or method, then its values.

    Example:
        >>> shown({"head": "linear", "linear.weight_decay": 0.0312345, "linear.whitens": False, "lr": 0.01})
        'linear: weight_decay 0.0312, no whitening, lr 0.01'
    """
    choice = next((str(params[name]) for name in ("head", "method") if name in params), "")
    found = []
    for name, value in params.items():
        short = name.removeprefix(f"{choice}.").replace("whitens", "whitening")
        if name in ("head", "method") or (value is True and name.endswith("whitens")):
            continue  # told first; the strength of the whitening follows
        if isinstance(value, bool):
            found.append(short if value else f"no {short}")
        else:
            found.append(f"{short} {value:.3g}" if isinstance(value, float) else f"{short} {value}")
    return ": ".join(part for part in (choice, ", ".join(found)) if part)


def history_chart(trials: Sequence[StudyTrial], *, width: float) -> Markup:
    """The score of each trial in their order, and the best so far as a line."""
    scored = [trial for trial in trials if trial.value is not None]
    done = [trial for trial in scored if trial.state == "complete"]
    last = max(trial.number for trial in scored)
    values = [trial.value for trial in scored if trial.value is not None]
    low, high = min(values), max(values)
    room = max((high - low) * 0.1, 0.01)
    panel = Panel(44, 8, width - 60, 200, (0, max(last, 1)), (max(0.0, low - room), min(1.0, high + room)))
    marks = ticks(*panel.y_range)
    best, steps = 0.0, list[tuple[float, float]]()
    for trial in done:
        value = trial.value or 0.0
        if value > best or not steps:
            if steps:
                steps.append((panel.x(trial.number), panel.y(best)))
            best = max(best, value)
            steps.append((panel.x(trial.number), panel.y(best)))
    steps.append((panel.x(last), panel.y(best)))
    points = [
        path(
            box(panel.x(trial.number) - 2.5, panel.y(trial.value or 0.0) - 2.5, 5, 5),
            "bar accent" if trial.state == "complete" else "bar muted",
            title=f"trial {trial.number}: {percent(trial.value)} % ({trial.state})",
        )
        for trial in scored
    ]
    across = [mark for mark in ticks(0, max(last, 1), 6) if mark == int(mark)]
    body = [
        *y_axis(panel, marks, [percent(mark) for mark in marks]),
        *x_axis(panel, across, [number(mark) for mark in across]),
        path(line(steps), "curve ink"),
        *points,
        text(panel.right, panel.bottom + 32, "trial", anchor="end", kind="axis"),
    ]
    return svg(body, width=width, height=panel.bottom + 40, label=f"Score of each trial; the best is {percent(best)} %")


def importance_chart(shares: Mapping[str, float], *, width: float) -> Markup:
    """A bar for each value, the most important first."""
    left, row = min(190.0, width * 0.42), 26
    span = width - left - 56
    body = []
    for place, (name, share) in enumerate(sorted(shares.items(), key=lambda item: -item[1])):
        top = 4 + place * row
        body += [
            text(left - 8, top + 14, shorten(name, 24), anchor="end"),
            path(box(left, top + 3, max(span * share, 0.5), 14), "bar accent"),
            text(left + span * share + 6, top + 14, f"{percent(share, 0)} %"),
        ]
    label = ", ".join(f"{name} {percent(share, 0)} per cent" for name, share in shares.items())
    return svg(body, width=width, height=8 + row * len(shares), label=f"What mattered: {label}")
