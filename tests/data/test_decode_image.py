import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from longtail.data.decode_image import UNREADABLE, decode_image


@pytest.mark.parametrize("mode", ["L", "1", "P", "CMYK", "RGB", "YCbCr"])
def test_eight_bit_modes_become_what_pillow_makes_of_them(tmp_path: Path, mode: str) -> None:
    source = Image.linear_gradient("L").convert("RGB").convert(mode)
    source.save(tmp_path / "a.tif")
    with Image.open(tmp_path / "a.tif") as stored:
        assert np.array_equal(decode_image(tmp_path / "a.tif"), np.asarray(stored.convert("RGB")))


def test_sixteen_bits_are_scaled_and_not_clipped(tmp_path: Path) -> None:
    deep = np.arange(0, 65536, 256, dtype=np.uint16).reshape(16, 16) + 77
    for name in ("a.png", "a.tif"):
        Image.fromarray(deep).save(tmp_path / name)
        pixels = decode_image(tmp_path / name)
        assert np.array_equal(pixels, np.repeat((deep // 256).astype(np.uint8)[..., None], 3, axis=2))


def test_transparent_pixels_are_laid_on_white(tmp_path: Path) -> None:
    pixels = np.zeros((1, 3, 4), np.uint8)
    pixels[0, :, 3] = (0, 51, 255)  # clear, one fifth, opaque black
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert decode_image(tmp_path / "a.png")[0, :, 0].tolist() == [255, 204, 0]

    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putpixel((1, 0), 1)
    palette.save(tmp_path / "b.png", transparency=0)
    assert decode_image(tmp_path / "b.png")[0].tolist() == [[255, 255, 255], [40, 50, 60]]


@pytest.mark.parametrize(
    ("orientation", "undo"),
    [(1, lambda a: a), (2, np.fliplr), (3, lambda a: np.rot90(a, 2)), (6, lambda a: np.rot90(a, -1))],
)
def test_the_camera_rotation_is_undone(tmp_path: Path, orientation: int, undo: object) -> None:
    assert callable(undo)
    pixels = np.random.default_rng(0).integers(0, 255, (6, 9, 3), np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(decode_image(tmp_path / "a.png"), undo(pixels))


def test_a_jpeg_is_decoded_at_the_smallest_scale_that_covers_the_size(tmp_path: Path) -> None:
    Image.linear_gradient("L").convert("RGB").resize((800, 600)).save(tmp_path / "a.jpg")
    assert decode_image(tmp_path / "a.jpg").shape == (600, 800, 3)
    assert decode_image(tmp_path / "a.jpg", size=150).shape == (150, 200, 3)
    assert decode_image(tmp_path / "a.jpg", size=151).shape == (300, 400, 3)
    small, full = decode_image(tmp_path / "a.jpg", size=300), decode_image(tmp_path / "a.jpg")
    means = full.reshape(300, 2, 400, 2, 3).mean((1, 3))
    assert np.abs(small - means).max() < 4


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"\x89PNG\r\n\x1a\n" + b"\0" * 30, b"plain text"])
def test_broken_files_raise_what_the_module_says_they_raise(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.jpg").write_bytes(content)
    with pytest.raises(UNREADABLE):
        decode_image(tmp_path / "a.jpg")


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(OSError, match="it is a pipe, socket or device"):
        decode_image(tmp_path / "a.png")


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp", "a.tif", "a.gif", "a.bmp"])
def test_truncated_files_raise(tmp_path: Path, name: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UNREADABLE):
        decode_image(tmp_path / name)
