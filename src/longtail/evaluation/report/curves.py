"""Reliability diagrams, training curves and sweeps of a parameter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from longtail.class_counts import GROUPS
from longtail.evaluation.calibration import Reliability
from longtail.evaluation.posthoc import PostHocChoice
from longtail.evaluation.report.svg import (
    Panel,
    box,
    line,
    number,
    path,
    percent,
    svg,
    text,
    ticks,
    x_axis,
    y_axis,
)
from longtail.evaluation.shifted import ShiftedAccuracy

Row = Mapping[str, float | None]
_SIZE = 190.0
_POINTS = 300
_HALVES = ((0.0, 0.5, 1.0), ("0", "50", "100"))
_SPLITS = ("train", "val", "test")
_LOSSES = tuple(f"{split}/loss" for split in _SPLITS)
_ACCURACIES = (
    "train/accuracy",
    *(f"{split}/{name}" for split in ("val", "test") for name in ("accuracy", "balanced")),
    *(f"{split}/accuracy_{group}" for split in ("val", "test") for group in GROUPS),
)


@dataclass(frozen=True)
class Series:
    """One line of a chart: its name in the legend, the class that colours it, and its points."""

    name: str
    kind: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Curves:
    """A chart with a title and a legend."""

    title: str
    series: tuple[Series, ...]
    chart: Markup


def reliability_chart(found: Reliability, *, name: str, kind: str) -> Markup:
    """Accuracy in each bin of confidence, its distance from the diagonal, and each bin's images."""
    plot = Panel(30, 8, _SIZE - 40, 130)
    share = Panel(30, 146, _SIZE - 40, 22, (0.0, 1.0), (0.0, float(max(found.counts) or 1)))
    bins = len(found.counts)
    accuracy = gap = images = ""
    for b, (count, confidence, right) in enumerate(zip(found.counts, found.confidence, found.accuracy, strict=True)):
        x, width = plot.x(b / bins) + 0.5, plot.width / bins - 1
        images += box(x, share.y(count), width, share.bottom - share.y(count))
        if confidence is None or right is None:
            continue
        accuracy += box(x, plot.y(right), width, plot.bottom - plot.y(right))
        high, low = plot.y(max(right, confidence)), plot.y(min(right, confidence))
        gap += box(x, high, width, low - high)
    parts = [
        *y_axis(plot, *_HALVES),
        path(accuracy, f"bar {kind}"),
        path(gap, "gap"),
        path(line([(plot.left, plot.bottom), (plot.right, plot.top)]), "diagonal"),
        path(images, "count"),
        *x_axis(share, *_HALVES),
        text(plot.right, share.bottom + 34, "confidence, %", anchor="end", kind="axis"),
    ]
    label = f"Reliability of {name}: expected calibration error {percent(found.error)} per cent"
    return svg(parts, width=_SIZE, height=share.bottom + 40, label=label)


def training_curves(rows: Sequence[Row]) -> list[Curves]:
    """Loss, its parts, accuracy, columns of the method and learning rate over epochs, from the rows of metrics.csv.

    A column `train/NAME` that is neither the loss nor an accuracy is a part of the loss; parts are shown where there
    are at least two. A column of any other prefix is the method's, and has a chart of its own.
    """
    keys = list(dict.fromkeys(key for row in rows for key in row))
    split = {key: key.partition("/")[0] for key in keys if "/" in key}
    loss = [key for key in split if key in _LOSSES]
    accuracy = [key for key in split if key in _ACCURACIES]
    parts = [key for key, prefix in split.items() if prefix == "train" and key not in (*loss, *accuracy)]
    panels = {"Loss": loss, "Parts of the loss": parts if len(parts) > 1 else [], "Accuracy, %": accuracy}
    for key, prefix in split.items():
        if prefix not in _SPLITS:
            name = key.partition("/")[2].replace("_", " ")
            panels[f"{prefix.capitalize()}: {name}"] = [key]
    panels["Learning rate"] = [key for key in keys if key == "lr"]
    found = []
    for title, members in panels.items():
        series = [_series(rows, key, members) for key in members]
        drawn = tuple(s for s in series if len(s.points) > 1)
        if drawn:
            found.append(Curves(title, drawn, _curves(title, drawn, "epoch", share=title.startswith("Accuracy"))))
    return found


def sweep_chart(choice: PostHocChoice) -> Markup:
    """The validation score of every value tried, with the chosen one marked."""
    series = (Series(choice.criterion, "accent", choice.tried),)
    return _curves(f"{choice.criterion} on validation images", series, choice.parameter, mark=choice.value, share=True)


def shift_chart(results: Sequence[ShiftedAccuracy]) -> Curves:
    """Accuracy from test sets that favour the head to test sets that favour the tail."""
    positions = range(len(results))
    series = (
        Series(
            "as trained",
            "muted",
            tuple((float(i), r.accuracy) for i, r in zip(positions, results, strict=True)),
        ),
        Series(
            "test prior known",
            "accent",
            tuple((float(i), r.accuracy_known_prior) for i, r in zip(positions, results, strict=True)),
        ),
    )
    names = [f"{r.direction[0].upper()}{r.imbalance_factor:g}" if r.imbalance_factor > 1 else "1" for r in results]
    chart = _curves("Accuracy under a shifted test set", series, "", names=names, share=True)
    return Curves("Accuracy, %", series, chart)


def _series(rows: Sequence[Row], key: str, members: Sequence[str]) -> Series:
    points = []
    for row in rows:
        value, epoch = row.get(key), row.get("epoch")
        if value is not None and epoch is not None and value == value:
            points.append((float(epoch), float(value)))
    step = max(1, len(points) // _POINTS)
    group = next((g for g in GROUPS if key.endswith(f"_{g}")), None)
    others = [m for m in members if not m.endswith(tuple(f"_{g}" for g in GROUPS))]
    kind = group or ("ink", "accent", "muted", "ink dashed", "accent dashed", "muted dashed")[others.index(key) % 6]
    return Series(key, kind, tuple(points[::step] + points[-1:] if step > 1 else points))


def _curves(
    title: str,
    series: Sequence[Series],
    axis: str,
    *,
    share: bool = False,
    mark: float | None = None,
    names: Sequence[str] | None = None,
) -> Markup:
    xs = [x for s in series for x, _ in s.points]
    ys = [y for s in series for _, y in s.points]
    low, high = min([0.0, *ys] if min(ys) >= 0 and not mark else ys), max(ys)
    if high == low:
        low, high = low - 0.5, high + 0.5
    plot = Panel(46, 8, 374, 170, (min(xs), max(xs)), (low, high + 0.04 * (high - low)))
    grid = ticks(low, high)
    scale = 100 if share else 1
    parts = y_axis(plot, grid, [f"{scale * t:.4g}" for t in grid])
    if names is None:
        below = [t for t in ticks(min(xs), max(xs), 5) if axis != "epoch" or t == int(t)]
        parts += x_axis(plot, below, [f"{t:g}" for t in below])
    else:
        parts += x_axis(plot, list(range(len(names))), names)
    if mark is not None:
        x = number(plot.x(mark))
        parts.append(path(f"M{x} {number(plot.top)}V{number(plot.bottom)}", "diagonal"))
    parts.append(text(plot.right, plot.bottom + 34, axis, anchor="end", kind="axis"))
    parts += [path(line([(plot.x(x), plot.y(y)) for x, y in s.points]), f"curve {s.kind}") for s in series]
    ends = ", ".join(f"{s.name} {s.points[-1][1]:.3g}" for s in series)
    return svg(parts, width=428, height=plot.bottom + 40, label=f"{title}; at the end {ends}")
