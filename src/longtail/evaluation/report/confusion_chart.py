"""Tables of shares as shades: the confusion matrix, its blocks, and which classes use which component.

A cell's share is rounded to one of ten shades, and all cells of a shade are one path, which keeps a page with
thousands of cells small.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from markupsafe import Markup

from longtail.evaluation._arrays import Floats
from longtail.evaluation.mixture import MixtureLayer
from longtail.evaluation.report.class_profile import by_size
from longtail.evaluation.report.svg import box, path, percent, shorten, svg, text
from longtail.evaluation.result import Evaluation

FULL_UP_TO = 30
NUMBERS_UP_TO = 15
BLOCKS = 12
STRIPS = 24
_SHADES = 10


def confusion_chart(found: Evaluation) -> Markup:
    """The share of each true class's images (row) that go to each class (column), classes by size."""
    order = by_size(found.classes)
    matrix = found.confusion_matrix[np.ix_(order, order)]
    names = [shorten(found.classes[k].name, 16) for k in order]
    return _square(
        _shares(matrix),
        names,
        label=f"Confusion matrix of {len(names)} classes, rows true, columns predicted. "
        f"{percent(found.top1.value)} per cent lie on the diagonal.",
    )


def block_chart(found: Evaluation) -> Markup:
    """The confusion matrix summed over blocks of classes of similar size."""
    order = by_size(found.classes)
    blocks = np.array_split(np.array(order), BLOCKS)
    block_of = np.empty(len(order), dtype=np.int64)
    for b, members in enumerate(blocks):
        block_of[members] = b
    matrix = np.zeros((BLOCKS, BLOCKS), dtype=np.int64)
    for true, predicted, images in found.confusions:
        matrix[block_of[true], block_of[predicted]] += images
    sizes = [(found.classes[m[0]].train, found.classes[m[-1]].train) for m in blocks]
    names = [f"{high:,}–{low:,}" if high != low else f"{high:,}" for high, low in sizes]
    return _square(
        _shares(matrix),
        names,
        label=f"Confusion between {BLOCKS} blocks of classes of similar size, rows true, columns predicted, "
        "named by their training images.",
    )


def usage_strip(layer: MixtureLayer, order: Sequence[int]) -> Markup | None:
    """Which classes use which component of a layer: a row a component, columns from frequent to rare."""
    rows = [layer.usage[k] for k in order if k < len(layer.usage)]
    bins = [[row for row in part if row is not None] for part in _split(rows, min(STRIPS, len(rows)))]
    if not any(bins):
        return None
    shares = np.array([np.mean(part, axis=0) if part else np.zeros(len(layer.priors)) for part in bins]).T
    width, height = 192 / len(bins), 9.0
    label = f"Use of the {len(layer.priors)} components of {layer.name}, from frequent to rare classes"
    return svg(cells(shares, width, height), width=192, height=height * len(layer.priors), label=label, kind="strip")


def weights_bar(layer: MixtureLayer) -> Markup:
    """The priors of a layer's components side by side."""
    parts, x = [], 0.0
    for j, prior in enumerate(layer.priors):
        parts.append(path(box(x, 0, 120 * prior, 14), f"part part{j % 4}", title=f"component {j + 1}: {prior:.1%}"))
        x += 120 * prior
    label = f"Weights of {layer.name}: " + ", ".join(f"{prior:.1%}" for prior in layer.priors)
    return svg(parts, width=120, height=14, label=label, kind="strip")


def _shares(matrix: np.ndarray) -> Floats:
    return np.asarray(matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1))


def _split(rows: list[tuple[float, ...] | None], parts: int) -> list[list[tuple[float, ...] | None]]:
    edges = [round(i * len(rows) / parts) for i in range(parts + 1)] if parts else [0]
    return [rows[a:b] for a, b in pairwise(edges)]


def _square(shares: Floats, names: Sequence[str], *, label: str) -> Markup:
    size = 26.0 if len(names) <= NUMBERS_UP_TO else 18.0
    # SVG cannot measure text: a character of a wide font at this size is about 7.4 units.
    longest = 7.4 * max(len(name) for name in names)
    margin, head = 12 + longest, 16 + 0.71 * longest
    extent = size * len(names)
    parts = [path(box(margin, head, extent, extent), "paper"), *cells(shares, size, size, margin, head)]
    for i, name in enumerate(names):
        middle = size * (i + 0.5)
        parts.append(text(margin - 6, head + middle + 4, name, anchor="end"))
        parts.append(text(margin + middle + 3, head - 6, name, turn=-45))
    if len(names) <= NUMBERS_UP_TO:
        parts += [
            text(
                margin + size * (j + 0.5),
                head + size * (i + 0.5) + 4,
                f"{100 * share:.0f}",
                anchor="middle",
                kind="cell strong" if share > 0.55 else "cell",
            )
            for (i, j), share in np.ndenumerate(shares)
            if share >= 0.005
        ]
    # The turned names of the last columns reach over the right edge.
    return svg(parts, width=margin + extent + head, height=head + extent + 2, label=label, kind="matrix")


def cells(shares: Floats, width: float, height: float, left: float = 0.0, top: float = 0.0) -> list[str]:
    """Path elements of a table of shares, 0 to 1; neighbours of one shade in a row are one box."""
    shade = np.ceil(np.clip(shares, 0, 1) * _SHADES).astype(int)
    parts = []
    for level in range(1, _SHADES + 1):
        data = ""
        for i, row in enumerate(shade == level):
            edges = np.flatnonzero(np.diff(np.concatenate(([False], row, [False]))))
            data += "".join(
                box(left + width * a, top + height * i, width * (b - a), height) for a, b in edges.reshape(-1, 2)
            )
        parts.append(path(data, f"shade s{level}"))
    return parts
