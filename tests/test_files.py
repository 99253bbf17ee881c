import errno
import os
import threading
from pathlib import Path

import pytest

from longtail._errors import DataError
from longtail._files import make_folder, whole_file, write_text


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "a"
    with whole_file(file) as out:
        out.write(b"new")
        assert not file.exists()
    assert file.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [file]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"old")
    with (
        pytest.raises(DataError, match=r"No space left on device\nwhat was there before is untouched"),
        whole_file(file),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the device that is always full is Linux's")
def test_a_device_without_room_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "with_name", lambda *_: Path("/dev/full"))
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)  # not the device
    with pytest.raises(DataError, match="No space left on device") as caught:
        write_text(tmp_path / "a", "x" * 100_000)
    assert caught.value.exit_code == 3


def test_the_one_before_can_be_kept(tmp_path: Path) -> None:
    for text in ("one", "two"):
        with whole_file(tmp_path / "a", keep=tmp_path / "b") as out:
            out.write(text.encode())
    assert (tmp_path / "a").read_text() == "two"
    assert (tmp_path / "b").read_text() == "one"


def test_an_exception_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(KeyboardInterrupt), whole_file(tmp_path / "a"):
        raise KeyboardInterrupt
    assert (tmp_path / "a").read_text() == "old"


def test_names_that_are_no_text_survive(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "caf\udce9")
    assert (tmp_path / "a").read_bytes() == b"caf\xe9"


def test_new_folders_are_flushed_in_the_folders_that_they_are_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(os.fstat(handle).st_ino))
    make_folder(tmp_path / "a" / "b")
    assert flushed == [place.stat().st_ino for place in (tmp_path, tmp_path / "a")]


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_text(pipe, "wren\n")
    reader.join(timeout=10)
    assert read == [b"wren\n"]
    assert pipe.is_fifo()
    assert [place.name for place in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="a device of Linux")
def test_a_full_device_is_named_and_stays_a_device(tmp_path: Path) -> None:
    link = tmp_path / "full"  # a rename would hit the link, not the device
    link.symlink_to("/dev/full")
    with pytest.raises(DataError, match="No space left"):
        write_text(link, "wren\n")
    assert link.is_char_device()
