"""Draw the cost of compound batch norm against components and channels, from the last measurement.

    python -m benchmarks.speed.plot_norm_layer

Reads the last record of `norm_layer` in results.jsonl and writes docs/norm_layer.svg.
"""

import math
from typing import Any

from benchmarks.record import ROOT, read_records
from benchmarks.speed import RESULTS

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 320, 200, 36, 164, 24


def panel(points: list[dict[str, Any]], key: str, title: str, x0: float) -> list[str]:
    """One chart: the ratio against `key` on a logarithmic axis, with quartiles as bars."""
    values = [math.log2(point[key]) for point in points]
    low, high = min(values), max(values)
    top: float = max(3.0, *(point["quartiles"][1] for point in points))

    def x(value: float) -> float:
        return x0 + LEFT + (WIDTH - LEFT - 20) * (value - low) / (high - low)

    def y(ratio: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * ratio / top

    lines = [f'<text x="{x0 + LEFT}" y="14" font-weight="bold">{title}</text>']
    for mark in range(math.floor(top) + 1):
        lines.append(
            f'<line x1="{x0 + LEFT}" x2="{x0 + WIDTH - 12}" y1="{y(mark):.1f}" y2="{y(mark):.1f}" stroke="#8886"/>'
        )
        lines.append(f'<text x="{x0 + LEFT - 6}" y="{y(mark) + 4:.1f}" text-anchor="end">{mark}x</text>')
    line = " ".join(f"{x(v):.1f},{y(p['compound_over_batch_norm']):.1f}" for v, p in zip(values, points, strict=True))
    lines.append(f'<polyline points="{line}" fill="none" stroke="#0d9488" stroke-width="2"/>')
    for value, point in zip(values, points, strict=True):
        at, (least, most) = x(value), point["quartiles"]
        lines.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y(least):.1f}" y2="{y(most):.1f}" stroke="#0d9488"/>')
        lines.append(f'<circle cx="{at:.1f}" cy="{y(point["compound_over_batch_norm"]):.1f}" r="3.5" fill="#0d9488"/>')
        lines.append(f'<text x="{at:.1f}" y="{BOTTOM + 18}" text-anchor="middle">{point[key]}</text>')
    return lines


def draw(sweep: list[dict[str, Any]]) -> str:
    """The two charts side by side."""
    components = [point for point in sweep if point["channels"] == 64][:4]
    channels = [point for point in sweep if point["components"] == 4 and point not in components]
    body = panel(components, "components", "components M, at 64 channels", 0)
    body += panel(channels, "channels", "channels, at M = 4", WIDTH)
    label = "Forward and backward of compound batch norm over batch norm, against components and channels"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT}" role="img" aria-label="{label}" '
    )
    return head + 'font-family="sans-serif" font-size="12" fill="#777">\n' + "\n".join(body) + "\n</svg>\n"


def main() -> None:
    """Write the picture."""
    record = [record for record in read_records(RESULTS) if record["benchmark"] == "norm_layer"][-1]
    place = ROOT / "docs" / "norm_layer.svg"
    place.write_text(draw(record["metrics"]["sweep"]))
    print(f"written to {place}")


if __name__ == "__main__":
    main()
