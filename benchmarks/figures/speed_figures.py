"""Pictures from the measurements of speed."""

import math
from typing import Any

from benchmarks.figures.canvas import Canvas
from benchmarks.record import read_records
from benchmarks.speed import RESULTS


def norm_layer_cost() -> str:
    """The cost of compound batch norm over batch norm, against components and channels."""
    record = [record for record in read_records(RESULTS) if record["benchmark"] == "norm_layer"][-1]
    sweep = record["metrics"]["sweep"]
    components = [point for point in sweep if point["channels"] == 64][:4]
    channels = [point for point in sweep if point["components"] == 4 and point not in components]
    top = max(3, math.ceil(max(point["quartiles"][1] for point in sweep)))
    canvas = Canvas(
        284,
        "Cost of the norm, forward and backward",
        "Time of compound batch norm over batch norm: it grows with the number of components, from "
        f"{components[0]['compound_over_batch_norm']:.1f} at one to {components[-1]['compound_over_batch_norm']:.1f} "
        "at eight, and hardly with the number of channels.",
    )
    canvas.text(16, 48, "times batch norm, median and quartiles", kind="quiet")
    for place, (points, key, name) in enumerate(
        ((components, "components", "components (64 channels)"), (channels, "channels", "channels (4 components)"))
    ):
        _panel(canvas, points, key, name, left=46 + 218 * place, top=top)
    return canvas.svg()


def _panel(canvas: Canvas, points: list[dict[str, Any]], key: str, name: str, *, left: float, top: int) -> None:
    """One chart on a logarithmic axis."""
    right, high, low = left + 200, 70.0, 236.0
    for mark in range(top + 1):
        y = low - (low - high) * mark / top
        canvas.rule(left, y, right, y)
        canvas.text(left - 6, y + 4, str(mark), anchor="end", kind="quiet")
    values = [math.log2(point[key]) for point in points]
    step = (right - left - 44) / (max(values) - min(values))
    places = [
        (left + 20 + step * (value - min(values)), low - (low - high) * point["compound_over_batch_norm"] / top)
        for value, point in zip(values, points, strict=True)
    ]
    canvas.curve(places, "ours")
    for (x, y), point in zip(places, points, strict=True):
        least, most = (low - (low - high) * quartile / top for quartile in point["quartiles"])
        canvas.rule(x, least, x, most, "stroke ours")
        canvas.dot(x, y, "ours")
    taken = -math.inf
    for (x, _), point in zip(places, points, strict=True):
        if x - taken > 34:  # 1024 and 2048 would touch
            canvas.text(x, low + 20, str(point[key]), anchor="middle", kind="quiet")
            taken = x
    canvas.text((left + right) / 2, low + 40, name, anchor="middle", kind="quiet")
