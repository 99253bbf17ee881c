"""Drawings of traffic signs, of which some are mirror images of others."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

MIRRORED = (("keep left", "keep right"), ("turn left", "turn right"))
SIGNS = ("ahead", "keep left", "keep right", "no entry", "stop", "turn left", "turn right", "yield")

# Corners of the white shape on each sign, from -1 to 1; those of "right", and mirrored for "left".
_SHAPES = {
    "ahead": ((-0.15, 0.7), (-0.15, 0), (-0.45, 0), (0, -0.7), (0.45, 0), (0.15, 0), (0.15, 0.7)),
    "keep": ((-0.6, -0.4), (-0.4, -0.6), (0.25, 0.05), (0.45, -0.2), (0.55, 0.6), (-0.2, 0.5), (0.05, 0.25)),
    "no": ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)),
    "stop": ((-0.7, -0.2), (0.7, -0.2), (0.7, 0.2), (-0.7, 0.2)),
    "turn": ((-0.5, 0.6), (-0.5, -0.2), (0.1, -0.2), (0.1, -0.5), (0.7, 0), (0.1, 0.45), (0.1, 0.15), (-0.2, 0.6)),
    "yield": ((-0.7, -0.5), (0.7, -0.5), (0, 0.7)),
}


def draw_sign(name: str, draw: np.random.Generator, size: int = 32) -> NDArray[np.uint8]:
    """A sign on a random background, at a random place, in random light, with noise."""
    wide = 4 * size
    picture = Image.new("RGB", (wide, wide), tuple(draw.integers(30, 220, 3).tolist()))
    pen = ImageDraw.Draw(picture)
    for _ in range(5):
        left, top = draw.integers(0, wide, 2).tolist()
        width, height = draw.integers(wide // 8, wide // 2, 2).tolist()
        pen.rectangle((left, top, left + width, top + height), fill=tuple(draw.integers(20, 235, 3).tolist()))
    x, y = (wide / 2 + draw.normal(0, 0.03 * wide, 2)).tolist()
    radius, light = wide * draw.uniform(0.36, 0.44), draw.uniform(0.5, 1.1)
    colour = (200, 30, 30) if name in ("no entry", "stop", "yield") else (30, 70, 190)
    pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=_lit(colour, light))
    side = -1 if name.endswith("left") else 1
    corners = [(x + side * radius * dx, y + radius * dy) for dx, dy in _SHAPES[name.split()[0]]]
    pen.polygon(corners, fill=_lit((230, 230, 230), light))
    small = np.asarray(picture.resize((size, size), Image.Resampling.BOX), dtype=np.float64)
    return (small + draw.normal(0, 12, small.shape)).clip(0, 255).astype(np.uint8)


def write_sign_folders(root: Path, count: int, names: tuple[str, ...] = SIGNS, seed: int = 0) -> Path:
    """A folder of class folders with `count` drawings of each sign."""
    draw = np.random.default_rng(seed)
    for name in names:
        (root / name).mkdir(parents=True)
        for i in range(count):
            Image.fromarray(draw_sign(name, draw)).save(root / name / f"{i:03}.png")
    return root


def _lit(colour: tuple[int, int, int], light: float) -> tuple[int, ...]:
    return tuple(min(255, round(value * light)) for value in colour)
