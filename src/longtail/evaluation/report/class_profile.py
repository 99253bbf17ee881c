"""The two charts of classes: their sizes above their recall, and recall against size."""

import math
from collections.abc import Sequence
from typing import Protocol

from markupsafe import Markup

from longtail._errors import counted
from longtail.class_counts import GROUPS, Group
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
)
from longtail.evaluation.report.svg import y_axis as horizontal_grid
from longtail.evaluation.result import ClassResult, Evaluation

NAMES_UP_TO = 30
TITLES_UP_TO = 400
_WIDEST_BAR = 36.0
_HALVES = ((0.0, 0.25, 0.5, 0.75, 1.0), ("0", "25", "50", "75", "100"))


def by_size(classes: Sequence[ClassResult]) -> list[int]:
    """Class indices from the largest training class to the smallest."""
    return sorted(range(len(classes)), key=lambda k: (-classes[k].train, k))


def class_profile(found: Evaluation, *, width: float) -> Markup:
    """Training images of each class above its recall, on one axis of classes by size."""
    classes = [found.classes[k] for k in by_size(found.classes)]
    slots = (0.0, float(len(classes)))
    wide = width > 500
    named = len(classes) <= (NAMES_UP_TO if wide else 12)
    left = 44.0
    largest = max(c.train for c in classes) or 1
    above = Panel(left, 24, width - left - 4, 150, slots, (0.0, largest))
    below = Panel(left, 214, width - left - 4, 150, slots)
    counts = [t for t in ticks(0, largest) if t == int(t)]
    parts = [
        text(0, 12, "Training images", kind="axis"),
        text(0, 202, "Recall, %", kind="axis"),
        *horizontal_grid(above, counts, [f"{int(t):,}" for t in counts]),
        *horizontal_grid(below, *_HALVES),
        *_columns(classes, above),
        *(_columns_of_recall(classes, below) if len(classes) <= NAMES_UP_TO else _dots(classes, below)),
    ]
    height = below.bottom + 26
    if named:
        height = below.bottom + 84
        parts += [
            text(below.x(i + 0.5) + 4, below.bottom + 14, shorten(c.name, 14), anchor="end", turn=-45)
            for i, c in enumerate(classes)
        ]
    else:
        parts.append(text(below.left, below.bottom + 18, "most frequent class"))
        parts.append(text(below.right, below.bottom + 18, "rarest class", anchor="end"))
    if wide and len(classes) <= TITLES_UP_TO:
        column = above.width / len(classes)
        parts += [
            path(box(above.x(i), above.top, column, below.bottom - above.top), "hover", title=describe(c))
            for i, c in enumerate(classes)
        ]
    label = (
        f"Training images and recall of {len(classes)} classes, from {counted(classes[0].train, 'image')} to "
        f"{classes[-1].train:,}. Balanced accuracy {percent(found.balanced.value)} per cent."
    )
    return svg(parts, width=width, height=height, label=label)


class Sized(Protocol):
    """A class with its group and its training images."""

    @property
    def name(self) -> str:
        """Of the class."""
        ...

    @property
    def group(self) -> Group:
        """Many, medium or few."""
        ...

    @property
    def train(self) -> int:
        """Training images."""
        ...


def class_sizes(classes: Sequence[Sized], *, width: float) -> Markup:
    """Training images of each class, classes from the largest to the smallest."""
    wide = width > 500
    largest = max(c.train for c in classes) or 1
    plot = Panel(44.0, 24, width - 48.0, 170, (0.0, float(len(classes))), (0.0, largest))
    counts = [t for t in ticks(0, largest) if t == int(t)]
    parts = [
        text(0, 12, "Training images", kind="axis"),
        *horizontal_grid(plot, counts, [f"{int(t):,}" for t in counts]),
        *_columns(classes, plot),
    ]
    if len(classes) <= (NAMES_UP_TO if wide else 12):
        height = plot.bottom + 84
        parts += [
            text(plot.x(i + 0.5) + 4, plot.bottom + 14, shorten(c.name, 14), anchor="end", turn=-45)
            for i, c in enumerate(classes)
        ]
    else:
        height = plot.bottom + 26
        parts.append(text(plot.left, plot.bottom + 18, "most frequent class"))
        parts.append(text(plot.right, plot.bottom + 18, "rarest class", anchor="end"))
    label = f"Training images of {len(classes)} classes, from {classes[0].train:,} to {classes[-1].train:,}."
    return svg(parts, width=width, height=height, label=label)


def accuracy_by_size(found: Evaluation, *, width: float) -> Markup:
    """Recall of each class against its training images, with each group's mean and its interval."""
    largest = max(c.train for c in found.classes)
    top = math.log10(largest + 1) * 1.02 or 1.0
    smallest = math.log10(min(c.train for c in found.classes) + 1)
    start = max(0.0, smallest - 0.05 * (top - smallest))
    plot = Panel(44, 24, width - 48, 280, (start, top))
    marks = [n for n in (0, 1, 2, 5, 10, 20, 50, 100, 200, 500) if n <= largest]
    marks += [d * 10**e for e in range(3, 7) for d in (1, 2, 5) if d * 10**e <= largest]
    marks = _spaced([n for n in marks if math.log10(n + 1) >= start], plot)
    parts = [
        text(0, 12, "Recall, %", kind="axis"),
        text(plot.right, plot.bottom + 34, "training images of the class", anchor="end", kind="axis"),
        *horizontal_grid(plot, *_HALVES),
        *x_axis(plot, [math.log10(n + 1) for n in marks], [f"{n:,}" for n in marks]),
    ]
    dense = "dense" if len(found.classes) > TITLES_UP_TO else ""
    titled = width > 500 and len(found.classes) <= TITLES_UP_TO
    for group in GROUPS:
        members = [c for c in found.classes if c.group == group and c.recall is not None]
        if not members:
            continue
        parts += _group_mean(found, group, members, plot)
        if len(found.classes) <= NAMES_UP_TO:
            whiskers = "".join(
                f"M{number(_x(plot, c))} {number(plot.y(c.low or 0))}V{number(plot.y(c.high or 0))}" for c in members
            )
            parts.append(path(whiskers, f"whisker {group}"))
        if titled:
            parts += [path(_marker(plot, c), f"mark {group}", title=describe(c)) for c in members]
        else:
            parts.append(path("".join(_marker(plot, c) for c in members), f"mark {group} {dense}"))
    means = "; ".join(
        f"{name} {percent(g.accuracy.value)} per cent" for name, g in found.groups.items() if g.accuracy is not None
    )
    label = f"Recall of each class against its number of training images. Group means: {means}."
    return svg(parts, width=width, height=plot.bottom + 42, label=label)


def describe(c: ClassResult) -> str:
    """One class in one line, for the tooltip."""
    recall = (
        "not measured" if c.recall is None else f"recall {percent(c.recall)} % of {counted(c.support, 'test image')}"
    )
    return f"{shorten(c.name, 60)}: {counted(c.train, 'training image')}, {recall}"


def _columns(classes: Sequence[Sized], panel: Panel) -> list[str]:
    slot = panel.width / len(classes)
    data = dict.fromkeys(GROUPS, "")
    if slot > 5:
        width = min(slot * 0.8, _WIDEST_BAR)
        for i, c in enumerate(classes):
            y = panel.y(c.train)
            data[c.group] += box(panel.x(i + 0.5) - width / 2, y, width, panel.bottom - y)
    else:
        # Bars without gaps would show seams; the classes of a group are neighbours, so one staircase draws them all.
        for group in GROUPS:
            stairs = [(i, panel.y(c.train)) for i, c in enumerate(classes) if c.group == group]
            if stairs:
                steps = "".join(f"V{number(y)}H{number(panel.x(i + 1))}" for i, y in stairs)
                start = number(panel.x(stairs[0][0]))
                data[group] = f"M{start} {number(panel.bottom)}{steps}V{number(panel.bottom)}z"
    return [path(d, f"bar {group}") for group, d in data.items()]


def _columns_of_recall(classes: Sequence[ClassResult], panel: Panel) -> list[str]:
    width = min(panel.width / len(classes) * 0.8, _WIDEST_BAR)
    data = dict.fromkeys(GROUPS, "")
    whiskers = absent = ""
    for i, c in enumerate(classes):
        x = panel.x(i + 0.5)
        if c.recall is None:
            absent += f"M{number(x - 4)} {number(panel.bottom - 5)}h8"
            continue
        y = panel.y(c.recall)
        data[c.group] += box(x - width / 2, y, width, panel.bottom - y)
        whiskers += f"M{number(x)} {number(panel.y(c.low or 0))}V{number(panel.y(c.high or 0))}"
    bars = [path(d, f"bar {group}") for group, d in data.items()]
    return [*bars, path(whiskers, "whisker"), path(absent, "whisker")]


def _dots(classes: Sequence[ClassResult], panel: Panel) -> list[str]:
    """A dot for each class, and the mean over classes of similar size, which shows the trend through the noise."""
    data = dict.fromkeys(GROUPS, "")
    for i, c in enumerate(classes):
        if c.recall is not None:
            data[c.group] += f"M{number(panel.x(i + 0.5))} {number(panel.y(c.recall))}h0"
    reach = max(2, len(classes) // 24)
    mean = []
    for i in range(0, len(classes), max(1, len(classes) // 200)):
        near = [c.recall for c in classes[max(0, i - reach) : i + reach + 1] if c.recall is not None]
        if near:
            mean.append((panel.x(i + 0.5), panel.y(sum(near) / len(near))))
    return [*(path(d, f"dot {group}") for group, d in data.items()), path(line(mean), "curve ink")]


def _group_mean(found: Evaluation, group: str, members: Sequence[ClassResult], plot: Panel) -> list[str]:
    estimate = next(g.accuracy for name, g in found.groups.items() if name == group)
    if estimate is None:
        return []
    positions = [_x(plot, c) for c in members]
    first, last = max(min(positions) - 8, plot.left), min(max(positions) + 8, plot.right)
    parts = []
    if estimate.low is not None and estimate.high is not None:
        high, low = plot.y(estimate.high), plot.y(estimate.low)
        parts.append(path(box(first, high, last - first, low - high), f"band {group}"))
    y = number(plot.y(estimate.value))
    return [*parts, path(f"M{number(first)} {y}H{number(last)}", f"mean {group}")]


def _x(plot: Panel, c: ClassResult) -> float:
    return plot.x(math.log10(c.train + 1))


def _marker(plot: Panel, c: ClassResult) -> str:
    """A circle, diamond or triangle: the groups differ in shape as well as in colour."""
    x, y = number(_x(plot, c)), number(plot.y(c.recall or 0.0))
    if c.group == "many":
        return f"M{x} {y}m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z"
    return f"M{x} {y}m0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5z" if c.group == "medium" else f"M{x} {y}m0-4.5l4.3 7.6h-8.6z"


def _spaced(marks: Sequence[int], plot: Panel) -> list[int]:
    """Leave out marks whose labels would touch."""
    kept: list[int] = []
    for n in marks:
        if not kept or plot.x(math.log10(n + 1)) - plot.x(math.log10(kept[-1] + 1)) > 34:
            kept.append(n)
    return kept
