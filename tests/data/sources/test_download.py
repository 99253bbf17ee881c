import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from longtail._errors import DataError
from longtail.data.sources import SourceError
from longtail.data.sources.download import download
from tests.support.file_server import FileServer, serving
from tests.support.silent_report import SilentReport

CONTENT = bytes(range(256)) * 20_000
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving({"file": CONTENT}) as server:
        yield server


def test_a_file_is_downloaded_and_its_progress_told(server: FileServer, tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []

    class Told(SilentReport):
        def advance(self, done: int, total: int | None) -> None:
            told.append((done, total))

    download(server.url + "file", tmp_path / "new" / "file", MD5, Told())
    assert (tmp_path / "new" / "file").read_bytes() == CONTENT
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


def test_a_broken_download_goes_on_where_it_stopped(server: FileServer, tmp_path: Path) -> None:
    server.limit = 2_000_000
    for _ in range(2):
        with pytest.raises(SourceError, match=r"the connection broke after \d,000,000 of 5,120,000 bytes"):
            download(server.url + "file", tmp_path / "file", MD5, SilentReport())
        assert not (tmp_path / "file").exists()
    download(server.url + "file", tmp_path / "file", MD5, SilentReport())
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=2000000-", "bytes=4000000-"]


def test_a_server_that_cannot_resume_is_asked_from_the_start(server: FileServer, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    download(server.url + "file", tmp_path / "file", MD5, SilentReport())
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_part_of_another_file_is_thrown_away(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"something else")
    download(server.url + "file", tmp_path / "file", MD5, SilentReport())
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_part_that_is_complete_is_taken(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    download(server.url + "file", tmp_path / "file", MD5, SilentReport())
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_another_file_than_the_published_one_is_refused(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not have the published checksum"):
        download(server.url + "file", tmp_path / "file", "0" * 32, SilentReport())
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_says_no_or_is_not_there(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="answered 404"):
        download(server.url + "files", tmp_path / "file", MD5, SilentReport())
    with pytest.raises(SourceError, match="cannot be reached"):
        download("http://127.0.0.1:9/file", tmp_path / "file", MD5, SilentReport())


def test_a_full_disk_is_named(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file.part").symlink_to("/dev/full")
    with pytest.raises(DataError, match="no space is left on the disk"):
        download(server.url + "file", tmp_path / "file", MD5, SilentReport())
