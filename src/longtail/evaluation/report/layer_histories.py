"""Charts of how the mixtures changed while training: for each layer two lines, and a strip for each group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from longtail.evaluation.mixture_record import MixtureRecord
from longtail.evaluation.report.confusion_chart import cells
from longtail.evaluation.report.svg import Panel, line, number, path, percent, svg

# At most this many records are drawn: more columns could not be told apart in a strip.
_COLUMNS = 24
_WIDTH, _HEIGHT = 96.0, 26.0


@dataclass(frozen=True)
class Course:
    """A number over the epochs: its chart, and its first and last value in words."""

    chart: Markup
    words: str


@dataclass(frozen=True)
class LayerHistory:
    """One layer: two numbers over the epochs, and the use of its components by group."""

    name: str
    effective: Course
    distance: Course | None
    use: Mapping[str, Course]


def layer_histories(
    history: Sequence[MixtureRecord], groups: Mapping[str, Sequence[int]]
) -> tuple[list[LayerHistory], tuple[int, int] | None]:
    """The layers of the last record, and the first and last epoch; nothing with fewer than two records.

    Args:
        history: the records, in order.
        groups: the classes of each group.
    """
    if len(history) < 2:
        return [], None
    chosen = np.unique(np.linspace(0, len(history) - 1, min(_COLUMNS, len(history))).round().astype(int))
    records = [history[i] for i in chosen]
    found = []
    for layer in records[-1].layers:
        states = [(r.epoch, then) for r in records if (then := r.layer(layer.name)) is not None]
        most = float(len(layer.priors))
        effective = [(epoch, then.effective_components) for epoch, then in states]
        apart = [(epoch, then.mean_distance) for epoch, then in states]
        distances = [(epoch, value) for epoch, value in apart if value is not None]
        uses = {group: [then.use_by(classes) for _, then in states] for group, classes in groups.items()}
        found.append(
            LayerHistory(
                layer.name,
                _course(f"Effective components of {layer.name}", effective, (1.0, most), form=".1f"),
                _course(f"Distance of components of {layer.name}", distances) if distances else None,
                {group: _use(layer.name, group, rows) for group, rows in uses.items() if any(rows)},
            )
        )
    return found, (records[0].epoch, records[-1].epoch)


def _course(
    what: str, values: Sequence[tuple[int, float]], limits: tuple[float, float] | None = None, *, form: str = ".2g"
) -> Course:
    first, last = values[0], values[-1]
    limits = limits or (0.0, max(value for _, value in values) or 1.0)
    panel = Panel(2, 3, _WIDTH - 4, _HEIGHT - 6, (first[0], last[0]), limits)
    points = [(panel.x(epoch), panel.y(value)) for epoch, value in values]
    x, y = points[-1]
    parts = [
        path(f"M0 {number(panel.bottom)}H{number(_WIDTH)}", "rule"),
        path(line(points), "curve accent"),
        path(f"M{number(x)} {number(y)}h0", "dot accent"),
    ]
    words = f"{first[1]:{form}} → {last[1]:{form}}"
    label = f"{what}: {first[1]:{form}} after epoch {first[0]}, {last[1]:{form}} after epoch {last[0]}"
    return Course(svg(parts, width=_WIDTH, height=_HEIGHT, label=label, kind="spark"), words)


def _use(name: str, group: str, rows: Sequence[tuple[float, ...] | None]) -> Course:
    """One row per component, one column per record; the column is empty where the group had no image."""
    components = max(len(row) for row in rows if row)
    shares = np.array([row or (0.0,) * components for row in rows]).T
    last = next(row for row in reversed(rows) if row)
    most = int(np.argmax(last))
    first = next(row for row in rows if row)
    before = int(np.argmax(first))
    label = (
        f"Use of the {components} components of {name} by {group}-shot classes over the epochs: "
        f"first mostly {before + 1} ({percent(first[before], 0)} per cent), "
        f"at the end mostly {most + 1} ({percent(last[most], 0)} per cent)"
    )
    height = max(4.0, _HEIGHT / components)
    parts = cells(shares, _WIDTH / len(rows), height)
    halves = (f"{percent(row[j], 0)} % in {j + 1}" for row, j in ((first, before), (last, most)))
    words = " → ".join(half.replace(" ", "\N{NO-BREAK SPACE}") for half in halves)
    return Course(svg(parts, width=_WIDTH, height=height * components, label=label, kind="strip"), words)
