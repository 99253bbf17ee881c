"""Tables of shares as shades: the confusion matrix, and its blocks of classes of similar size.

Each share is rounded to one of ten shades, and all cells of a shade are one path, which keeps a page with thousands of
cells small.
"""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from longtail.evaluation._arrays import Floats
from longtail.evaluation.report.class_profile import by_size
from longtail.evaluation.report.svg import box, path, percent, shorten, svg, text
from longtail.evaluation.result import Evaluation

FULL_UP_TO = 30
NUMBERS_UP_TO = 15
BLOCKS = 12
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


def _shares(matrix: np.ndarray) -> Floats:
    return np.asarray(matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1))


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
    # The rotated names of the last columns extend past the right edge.
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
