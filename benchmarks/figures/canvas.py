"""An SVG picture that is read at 390 pixels and at any size above, in light and dark.

It is drawn 480 wide and shown no wider, so that a narrow screen shrinks its letters by a quarter at most. Colours
follow the reader's system, and the paper is part of the picture: a page of the other colour does not hide the letters.
"""

from collections.abc import Iterable, Sequence
from html import escape

WIDTH = 480
STYLE = """
svg { --paper: #ffffff; --ink: #1b1f24; --quiet: #5c6670; --line: #dde2e7; --ours: #0b7268; --plain: #b45309;
  --third: #0f6cb0; --soft: #e6f2f0; }
@media (prefers-color-scheme: dark) { svg { --paper: #14171a; --ink: #e8ebee; --quiet: #a3adb7; --line: #343b43;
  --ours: #4cc3b5; --plain: #f0a860; --third: #6db7f2; --soft: #1d3431; } }
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", Arial, sans-serif; fill: var(--ink); }
.title { font-weight: 650; font-size: 15px; }
.quiet { fill: var(--quiet); }
.ours { --tone: var(--ours); } .plain { --tone: var(--plain); } .third { --tone: var(--third); }
.grey { --tone: var(--quiet); } .soft { --tone: var(--soft); }
text.ours, text.plain, text.third { fill: var(--tone); font-weight: 600; }
.fill { fill: var(--tone); } .stroke { stroke: var(--tone); fill: none; stroke-width: 2; }
.ring { stroke: var(--tone); fill: var(--paper); stroke-width: 2; }
.rule { stroke: var(--line); stroke-width: 1; } .dashed { stroke-dasharray: 5 4; }
.box { fill: var(--soft); stroke: var(--ours); }
"""


class Canvas:
    """A picture that grows by its parts.

    Args:
        height: in the units of the drawing.
        title: shown at the top.
        label: what the picture says, for those who do not see it.
    """

    def __init__(self, height: float, title: str, label: str) -> None:
        self.height = height
        self.label = label
        self.parts: list[str] = []
        self.text(16, 26, title, kind="title")

    def text(self, x: float, y: float, words: str, *, anchor: str = "start", kind: str = "") -> None:
        """Words that start, end or are centred at a point."""
        self.parts.append(
            f'<text x="{_number(x)}" y="{_number(y)}" text-anchor="{anchor}"{_class(kind)}>{escape(words)}</text>'
        )

    def rule(self, x1: float, y1: float, x2: float, y2: float, kind: str = "rule") -> None:
        """A straight line."""
        ends = " ".join(f'{k}="{_number(v)}"' for k, v in zip(("x1", "y1", "x2", "y2"), (x1, y1, x2, y2), strict=True))
        self.parts.append(f"<line {ends}{_class(kind)}/>")

    def bar(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """A filled rectangle."""
        self.parts.append(
            f'<rect x="{_number(x)}" y="{_number(y)}" width="{_number(max(width, 0))}" '
            f'height="{_number(max(height, 0))}" rx="1.5"{_class(f"fill {kind}")}/>'
        )

    def dot(self, x: float, y: float, kind: str, *, ring: bool = False, radius: float = 4) -> None:
        """A disc, or a ring."""
        style = "ring" if ring else "fill"
        self.parts.append(
            f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(radius)}"{_class(f"{style} {kind}")}/>'
        )

    def curve(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """A line through points."""
        path = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        self.parts.append(f'<polyline points="{path}"{_class(f"stroke {kind}")}/>')

    def box(self, x: float, y: float, width: float, lines: Sequence[str], kind: str = "box") -> float:
        """A box with centred lines, the first in bold; returns its lower edge."""
        height = 12 + 17 * len(lines)
        self.parts.append(
            f'<rect x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" height="{height}" rx="6"{_class(kind)}/>'
        )
        for number, words in enumerate(lines):
            style = "ours" if number == 0 else ""
            self.text(x + width / 2, y + 19 + 17 * number, words, anchor="middle", kind=style)
        return y + height

    def arrow(self, x: float, y1: float, y2: float) -> None:
        """An arrow downwards."""
        self.rule(x, y1, x, y2 - 5, "stroke grey")
        tip = f"{_number(x - 4)},{_number(y2 - 6)} {_number(x + 4)},{_number(y2 - 6)} {_number(x)},{_number(y2)}"
        self.parts.append(f'<polygon points="{tip}" class="fill grey"/>')

    def percent_axis(
        self, left: float, right: float, top: float, bottom: float, marks: Iterable[int] = (0, 50, 100)
    ) -> None:
        """Horizontal rules at per cents of the height, with their numbers on the left."""
        for mark in marks:
            y = bottom - (bottom - top) * mark / 100
            self.rule(left, y, right, y)
            self.text(left - 6, y + 4, f"{mark} %", anchor="end", kind="quiet")

    def key(self, x: float, y: float, entries: Sequence[tuple[str, str]]) -> None:
        """A legend in one line: kinds with their names."""
        for kind, name in entries:
            self.dot(x + 4, y - 4, kind)
            self.text(x + 13, y, name, kind=kind)
            x += 26 + 7.4 * len(name)

    def svg(self) -> str:
        """The whole picture."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{_number(self.height)}" '
            f'viewBox="0 0 {WIDTH} {_number(self.height)}" role="img" aria-label="{escape(self.label)}">'
        )
        paper = f'<rect width="{WIDTH}" height="{_number(self.height)}" rx="8" fill="var(--paper)"/>'
        return "\n".join([head, f"<style>{STYLE}</style>", paper, *self.parts, "</svg>", ""])


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
