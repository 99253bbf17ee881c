import os
from pathlib import Path

import pytest
from PIL import Image

from longtail.data import scan
from longtail.data.decode_image import decode_image
from longtail.data.scan import same_files, scan_file, scan_files


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Images 1 and 4 are the same, 3 is broken."""
    files = [tmp_path / f"{i}.png" for i in range(12)]
    for i, file in enumerate(files):
        Image.new("RGB", (10 + i, 10), (1 if i == 4 else i, 0, 0)).resize((10, 10)).save(file)
    files[3].write_bytes(b"broken")
    return [str(file) for file in files]


@pytest.mark.parametrize("full", [False, True])
def test_several_processes_see_what_one_sees(paths: list[str], full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [scan_file(path, full) for path in paths]
    assert [bool(seen.error) for seen in alone] == [i == 3 for i in range(12)]
    monkeypatch.setattr(scan, "_ALONE", 1)
    told: list[tuple[int, int]] = []
    assert scan_files(paths, full=full, progress=lambda done, total: told.append((done, total))) == alone
    assert told[-1] == (12, 12)
    assert told == sorted(told)
    assert len(told) > 1


def test_files_with_the_same_bytes_are_grouped(paths: list[str]) -> None:
    lengths = [Path(path).stat().st_size for path in paths]
    assert same_files(paths, lengths) == [[1, 4]]
    assert same_files([], []) == []


def test_a_file_that_vanishes_is_the_same_as_none(paths: list[str]) -> None:
    lengths = [Path(path).stat().st_size for path in paths]
    Path(paths[1]).unlink()
    assert same_files(paths, lengths) == []


@pytest.mark.parametrize("orientation", range(1, 9))
def test_width_and_height_are_those_of_the_upright_image(orientation: int, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", (30, 20)).save(tmp_path / "a.jpg", exif=exif)
    seen = scan_file(str(tmp_path / "a.jpg"))
    assert (seen.height, seen.width) == decode_image(tmp_path / "a.jpg").shape[:2]
    assert seen.rotated is (orientation > 1)


def test_a_header_is_looked_at_without_decoding(tmp_path: Path) -> None:
    Image.effect_noise((30, 20), 50).save(tmp_path / "a.png")
    whole = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(whole[:60])
    seen = scan_file(str(tmp_path / "a.png"))
    assert (seen.error, seen.mode, seen.width, seen.height, seen.length) == ("", "L", 30, 20, 60)
    assert scan_file(str(tmp_path / "a.png"), full=True).error


@pytest.mark.parametrize("full", [False, True])
def test_a_pipe_is_unreadable_and_not_waited_for(tmp_path: Path, full: bool) -> None:
    os.mkfifo(tmp_path / "a.png")
    assert "it is a pipe, socket or device" in scan_file(str(tmp_path / "a.png"), full).error
