"""Functions that write charts as SVG text: numbers, text, axes.

Charts carry no colour and no style attribute, which the page's content security policy forbids: a class names
the role (`many`, `grid`, `label`), and the style sheet colours it for light, dark and print.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape


@dataclass(frozen=True)
class Panel:
    """A rectangle of a chart with its two scales: values in, coordinates out."""

    left: float
    top: float
    width: float
    height: float
    x_range: tuple[float, float] = (0.0, 1.0)
    y_range: tuple[float, float] = (0.0, 1.0)

    @property
    def bottom(self) -> float:
        """The y coordinate of the axis."""
        return self.top + self.height

    @property
    def right(self) -> float:
        """The x coordinate of the right edge."""
        return self.left + self.width

    def x(self, value: float) -> float:
        """The x coordinate of `value`."""
        return self.left + self.width * _share(value, self.x_range)

    def y(self, value: float) -> float:
        """The y coordinate of `value`."""
        return self.bottom - self.height * _share(value, self.y_range)


def _share(value: float, limits: tuple[float, float]) -> float:
    low, high = limits
    return (value - low) / (high - low) if high > low else 0.5


def number(value: float) -> str:
    """A coordinate with at most one decimal: a page of 1,000 classes holds many."""
    text = f"{value:.1f}"
    return text.removesuffix(".0").replace("-0", "0") if text in ("-0.0", "0.0") else text.removesuffix(".0")


def percent(value: float | None, decimals: int = 1) -> str:
    """A share in per cent, a dash where there is none."""
    return "–" if value is None else f"{100 * value:.{decimals}f}"


def points(value: float, decimals: int = 1) -> str:
    """A difference in percentage points with its sign; 0 has none.

    Example:
        >>> points(0.031), points(-0.25, 0), points(0.0)
        ('+3.1', '−25', '0.0')
    """
    rounded = round(100 * value, decimals)
    return f"{'+' if rounded > 0 else '−' if rounded < 0 else ''}{abs(rounded):.{decimals}f}"


def shorten(name: str, length: int) -> str:
    """`name` cut to `length` characters, with an ellipsis where it was cut; newlines become spaces."""
    flat = " ".join(name.split()) or name
    return flat if len(flat) <= length else flat[: length - 1].rstrip() + "…"


def svg(body: Iterable[str], *, width: float, height: float, label: str, kind: str = "chart") -> Markup:
    """A whole chart; `label` is for screen readers."""
    # A chart fills its column; anything else keeps the size that it was drawn at.
    size = "" if kind == "chart" else f'width="{number(width)}" height="{number(height)}" '
    return Markup(
        f'<svg class="{kind}" {size}viewBox="0 0 {number(width)} {number(height)}" role="img" '
        f'aria-label="{escape(label)}">{"".join(body)}</svg>'
    )


def text(x: float, y: float, words: str, *, anchor: str = "start", kind: str = "label", turn: int = 0) -> str:
    """Words at a point; `turn` rotates them about it."""
    turned = f' transform="rotate({turn} {number(x)} {number(y)})"' if turn else ""
    place = f'x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"{turned}'
    return f'<text class="{kind}" {place}>{escape(words)}</text>'


def path(data: str, kind: str, *, title: str = "") -> str:
    """A path of class `kind`; `title` shows when the pointer rests on it."""
    if not data:
        return ""
    inner = f"<title>{escape(title)}</title>" if title else ""
    return f'<path class="{kind}" d="{data}">{inner}</path>' if inner else f'<path class="{kind}" d="{data}"/>'


def line(points: Sequence[tuple[float, float]]) -> str:
    """Path data through `points`."""
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points) if points else ""


def box(x: float, y: float, width: float, height: float) -> str:
    """Path data of a rectangle."""
    return f"M{number(x)} {number(y)}h{number(width)}v{number(height)}h{number(-width)}z"


def y_axis(panel: Panel, values: Iterable[float], labels: Iterable[str]) -> list[str]:
    """Horizontal grid lines with their labels on the left."""
    parts = []
    for value, label in zip(values, labels, strict=True):
        y = panel.y(value)
        parts.append(path(f"M{number(panel.left)} {number(y)}H{number(panel.right)}", "rule"))
        parts.append(text(panel.left - 6, y + 4, label, anchor="end"))
    return parts


def x_axis(panel: Panel, values: Iterable[float], labels: Iterable[str]) -> list[str]:
    """Labels under the panel."""
    return [text(panel.x(v), panel.bottom + 16, t, anchor="middle") for v, t in zip(values, labels, strict=True)]


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """About `count` round numbers from `low` to `high`.

    Example:
        >>> ticks(0, 500)
        [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]
    """
    if not high > low:
        return [low]
    raw = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * 0.75)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]
