"""Small images on disk, alone and in class folders."""

import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def write_image(path: Path, mode: str = "RGB", **options: Any) -> Path:
    """Save an image of 16 x 12 random pixels, another one for each path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(zlib.crc32(os.fsencode(path))).integers(0, 255, (12, 16, 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(path, **options)
    return path


def write_image_folders(root: Path, counts: dict[str, int]) -> Path:
    """Make each folder of `counts` below `root`, with as many images, 0.png, 1.png and so on."""
    for name, count in counts.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            write_image(root / name / f"{i}.png")
    return root
