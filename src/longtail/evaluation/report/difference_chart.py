"""The charts of a comparison: each metric's difference with its interval, and each class's change."""

from collections.abc import Sequence

from markupsafe import Markup

from longtail._errors import counted
from longtail.class_counts import GROUPS
from longtail.evaluation.comparison import ClassDifference, Comparison, label
from longtail.evaluation.report.class_profile import by_size
from longtail.evaluation.report.svg import Panel, box, number, path, points, svg, text, ticks, x_axis, y_axis
from longtail.evaluation.result import Evaluation

_ROW = 30.0


def difference_chart(comparison: Comparison, run: str, *, width: float) -> Markup:
    """A run's difference from the baseline in each metric, in points, around a line at 0."""
    rows = [d for d in comparison.differences if d.run == run]
    ends = [abs(v) for d in rows for v in (d.value, d.low, d.high) if v is not None]
    reach = max([*ends, 0.01]) * 1.08
    left = 100.0
    plot = Panel(left, 8, width - left - 12, _ROW * len(rows), (-reach, reach))
    marks = ticks(-reach, reach, 6 if width > 500 else 3)
    parts = []
    for mark in marks:
        x = number(plot.x(mark))
        parts.append(path(f"M{x} {number(plot.top)}V{number(plot.bottom)}", "diagonal" if mark == 0 else "rule"))
    parts += x_axis(plot, marks, [_sign(mark) for mark in marks])
    for i, d in enumerate(rows):
        y = plot.top + _ROW * (i + 0.5)
        kind = {"better": "better", "worse": "worse"}.get(d.verdict, "muted")
        parts.append(text(left - 12, y + 4, label(d.metric).removesuffix(" accuracy"), anchor="end"))
        if d.low is not None and d.high is not None:
            parts.append(path(f"M{number(plot.x(d.low))} {number(y)}H{number(plot.x(d.high))}", f"range {kind}"))
        x = number(plot.x(d.value))
        parts.append(path(f"M{x} {number(y)}m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z", f"mark {kind}"))
    parts.append(text(plot.right, plot.bottom + 34, "points", anchor="end", kind="axis"))
    numbers = "; ".join(f"{label(d.metric)} {points(d.value)}, {d.verdict}" for d in rows)
    return svg(
        parts,
        width=width,
        height=plot.bottom + 40,
        label=f"{run} minus {comparison.baseline}, in points: {numbers}",
    )


def class_changes(first: Evaluation, changes: Sequence[ClassDifference], run: str, *, width: float) -> Markup:
    """The change of each class's recall, classes from frequent to rare."""
    order = {k: i for i, k in enumerate(by_size(first.classes))}
    reach = max([abs(d.value) for d in changes] + [0.05]) * 1.05
    plot = Panel(44, 24, width - 48, 190, (0.0, float(len(order))), (-reach, reach))
    slot = plot.width / len(order)
    bar = slot * 0.8 if slot > 5 else slot
    data = dict.fromkeys(GROUPS, "")
    for d in changes:
        y, zero = plot.y(d.value), plot.y(0)
        left = plot.x(order[d.class_index] + 0.5) - bar / 2
        data[first.classes[d.class_index].group] += box(left, min(y, zero), bar, abs(y - zero)) if d.value else ""
    marks = ticks(-reach, reach)
    parts = [
        text(0, 12, "Change of recall, points", kind="axis"),
        *y_axis(plot, marks, [_sign(mark) for mark in marks]),
        *(path(d, f"bar {group}") for group, d in data.items()),
        text(plot.left, plot.bottom + 18, "most frequent class"),
        text(plot.right, plot.bottom + 18, "rarest class", anchor="end"),
    ]
    up, down = sum(d.value > 0 for d in changes), sum(d.value < 0 for d in changes)
    label_ = f"Change of recall from the baseline to {run}: {counted(up, 'class')} up, {down} down"
    return svg(parts, width=width, height=plot.bottom + 26, label=label_)


def _sign(mark: float) -> str:
    """A tick in points, with its sign."""
    return f"{'+' if mark > 0 else '−' if mark < 0 else ''}{abs(100 * mark):.3g}"
