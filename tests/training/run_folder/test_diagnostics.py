import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from longtail.data import ArrayImages, FileImages
from longtail.training.run_folder.diagnostics import Diagnostics, read_diagnostics, worst_errors, write_diagnostics

# Of four images of two classes the second and the fourth are wrong, the fourth more surely.
LOGITS = np.array([[1.0, 0], [1, 0], [0, 1], [3, 0]])
TARGET = np.array([0, 1, 1, 1])


def opened(image: bytes) -> Image.Image:
    return Image.open(io.BytesIO(image))


def test_everything_comes_back_as_it_was(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 1), dtype=np.uint8)
    names = ["a", "b\udcff", "c", "d"]
    errors = worst_errors(ArrayImages(pixels, TARGET), names, LOGITS, TARGET, ["<b>", "🦉"])
    record = {"epoch": 3, "section": [{"name": "norm", "values": [0.5, None]}]}
    found = Diagnostics(["two images are the same"], errors, [record], ["groups are ours"])
    write_diagnostics(tmp_path, found)
    assert read_diagnostics(tmp_path) == found
    assert read_diagnostics(tmp_path / "elsewhere") == Diagnostics()


def test_the_surest_mistake_comes_first_pixel_by_pixel() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 1), dtype=np.uint8)
    first, second = worst_errors(ArrayImages(pixels, TARGET), list("abcd"), LOGITS, TARGET, ["x", "y"])
    assert (first.path, first.target, first.prediction) == ("d", "y", "x")
    assert first.confidence == pytest.approx(1 / (1 + np.exp(-3)))
    assert second.path == "b"
    shown = np.asarray(opened(first.image))
    assert np.array_equal(shown[::14, ::14], pixels[3, :, :, 0])
    assert shown.shape == (112, 112)


def test_photographs_are_shrunk_and_broken_ones_left_out(tmp_path: Path) -> None:
    for name in "abd":
        Image.effect_noise((2000, 1000), 60).convert("RGB").save(tmp_path / name, "JPEG")
    (tmp_path / "b").write_text("no image")
    images = FileImages(["a", "b", "c", "d"], TARGET, root=tmp_path)
    (only,) = worst_errors(images, list("abcd"), LOGITS, TARGET, ["x", "y"])
    assert only.path == "d"
    assert opened(only.image).size == (112, 56)
    assert len(only.image) < 8000
