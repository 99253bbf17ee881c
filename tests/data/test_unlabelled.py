import csv
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from longtail._errors import DataError
from longtail.data.unlabelled import UnlabelledImages, as_channels, find_images


def images(folder: Path, *names: str) -> list[str]:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(file, "PNG")
    return [str(folder / name) for name in names]


def test_a_folder_is_searched_at_any_depth(tmp_path: Path) -> None:
    expected = images(tmp_path, "b.png", "deep/er/a.jpg")
    (tmp_path / "notes.txt").write_text("")
    images(tmp_path, ".hidden.png")
    assert find_images([str(tmp_path)]) == expected


def test_a_pattern_that_no_shell_has_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images(tmp_path, "a.png", "b.png", "deep/c.png", ".hidden.png")
    assert find_images([f"{tmp_path}/*.png"]) == [f"{tmp_path}/a.png", f"{tmp_path}/b.png"]
    monkeypatch.chdir(tmp_path / "deep")
    assert find_images(["../?.png"]) == ["../a.png", "../b.png"]
    monkeypatch.chdir(tmp_path)
    assert find_images(["**/*.png"]) == ["a.png", "b.png", "deep/c.png"]


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(tmp_path: Path) -> None:
    (name,) = images(tmp_path, "bird[1].png")
    assert find_images([name]) == [name]


def test_the_paths_of_a_csv_are_below_its_folder(tmp_path: Path) -> None:
    expected = images(tmp_path, "in/a, b.png", "in/ü.png")
    with (tmp_path / "list.csv").open("w", encoding="utf-8-sig", newline="") as out:
        csv.writer(out).writerows([["Label", " Path "], ["x", "in/a, b.png"], ["y", "in/ü.png"], ["z", ""]])
    assert find_images([str(tmp_path / "list.csv")]) == expected
    (tmp_path / "far.csv").write_text(f"path\n{expected[1]}\n", encoding="utf-8")
    assert find_images([str(tmp_path / "far.csv")]) == expected[1:]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a.pgn", "did you mean"),
        ("empty", "holds no images"),
        ("*.webp", "holds no images"),
        ("labels.csv", "has no column 'path'; its first line is 'photo,label'"),
        ("nothing.csv", "has no column 'path'"),
    ],
)
def test_sources_without_images(tmp_path: Path, source: str, message: str) -> None:
    images(tmp_path, "a.png")
    (tmp_path / "empty").mkdir()
    (tmp_path / "labels.csv").write_text("photo,label\na.png,1\n")
    (tmp_path / "nothing.csv").write_text("")
    with pytest.raises(DataError, match=message):
        find_images([str(tmp_path / source)])


def test_grey_is_pillows_grey() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    expected = np.asarray(Image.fromarray(pixels).convert("L"))
    found = as_channels(torch.from_numpy(pixels).permute(2, 0, 1), 1)
    assert found.dtype == torch.uint8
    assert np.array_equal(found[0].numpy(), expected)


def test_a_grey_image_that_was_made_rgb_is_itself_again() -> None:
    grey = torch.arange(256, dtype=torch.uint8).view(1, 16, 16)
    assert torch.equal(as_channels(as_channels(grey, 3), 1), grey)


def test_what_cannot_be_decoded_is_marked_and_never_replaced(tmp_path: Path) -> None:
    good = images(tmp_path, "good.png")[0]
    Image.effect_noise((200, 200), 50).save(tmp_path / "cut.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "cut.jpg").read_bytes()[:1000])
    (tmp_path / "text.png").write_text("no image")
    bad = [str(tmp_path / name) for name in ("cut.jpg", "text.png", "absent.png")]
    found = UnlabelledImages([good, *bad, os.fspath(tmp_path)], channels=3)
    assert [found[i][0].shape[0] for i in range(5)] == [3] * 5
    assert found.unreadable == [1, 2, 3, 4]
