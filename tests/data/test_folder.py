import os
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from longtail._errors import DataError
from longtail.data import open_dataset
from longtail.data.folder import Folder, find_folder
from longtail.data.open_dataset import take_inventory
from tests.support.image_folders import write_image, write_image_folders

SPLITS = {"train/a": 2, "train/a/deep": 1, "train/b": 2, "train": 1, "test/a": 1, "test/b": 1, "notes": 0}


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each folder was listed."""
    counts: Counter[str] = Counter()
    scandir: Any = os.scandir

    def counting(path: Any = ".") -> Any:
        counts[os.path.realpath(path)] += 1
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counting)
    return counts


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    ("counts", "place"),
    [
        ({"a": 2, "a/deep/er": 2, "b": 2, ".": 1}, ""),
        (SPLITS, ""),
        (SPLITS, "train"),
        ({f"birds/images/{name}": count for name, count in SPLITS.items()}, ""),
    ],
)
def test_each_folder_is_listed_once(
    tmp_path: Path, listed: Counter[str], counts: dict[str, int], place: str, check: bool
) -> None:
    write_image_folders(tmp_path, counts)
    folders = {str(folder.resolve()) for folder in [tmp_path, *tmp_path.rglob("*")] if folder.is_dir()}
    listed.clear()
    open_dataset(tmp_path / place, check=check)
    # What lies beside the splits is not looked into.
    assert listed == {folder: 1 for folder in folders if not folder.endswith("notes")}


def test_the_images_are_those_that_a_walk_of_the_tree_finds(tmp_path: Path) -> None:
    write_image_folders(tmp_path, {"b": 2, "a/2024/may": 2, "a": 1, "a/.cache": 1, ".git": 1, "__MACOSX": 1, ".": 2})
    (tmp_path / "a" / "notes.txt").write_text("")
    write_image(tmp_path / "b" / "LOUD.JPG")
    expected = sorted(
        str(path.relative_to(tmp_path))
        for path in tmp_path.rglob("*")
        if path.suffix.lower() in (".png", ".jpg")
        and not any(part.startswith((".", "__MACOSX")) for part in path.relative_to(tmp_path).parts)
    )
    assert sorted(Folder(tmp_path).images_below()) == expected


def test_a_link_to_a_class_is_followed_and_one_inside_a_class_is_not(tmp_path: Path) -> None:
    write_image_folders(tmp_path, {"birds/a": 2, "birds/b": 2, "elsewhere/c": 3})
    (tmp_path / "birds" / "c").symlink_to(tmp_path / "elsewhere" / "c")
    (tmp_path / "birds" / "a" / "up").symlink_to(tmp_path / "birds")
    assert list(take_inventory(tmp_path / "birds").class_counts) == [2, 2, 3]


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_image_folders(tmp_path, {"a": 2, "b": 2})
    scandir: Any = os.scandir

    def refusing(path: Any = ".") -> Any:
        if str(path).endswith("b"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(DataError, match=r"b cannot be read: Permission denied") as caught:
        take_inventory(tmp_path)
    assert caught.value.code == "not-readable"


def test_pipes_and_sockets_are_skipped_and_counted(tmp_path: Path) -> None:
    for label in ("robin", "wren"):
        (tmp_path / label).mkdir()
        (tmp_path / label / "1.png").touch()
    os.mkfifo(tmp_path / "wren" / "2.png")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "wren" / "3.png"))
        found = find_folder(tmp_path)
    assert found.count("train") == 2
    assert f"left out, no files: 2 pipes, sockets or devices in {tmp_path}" in found.notes
