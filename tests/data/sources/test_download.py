import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from longtail._errors import DataError
from longtail.data.sources import Silence, SourceError
from longtail.data.sources.download import download

CONTENT = bytes(range(256)) * 20_000
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(HTTPServer):
    """Serves CONTENT; breaks off after `limit` bytes of an answer, and honours Range if `ranges`."""

    limit = len(CONTENT)
    ranges = True
    asked: list[str | None]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.ranges else 0
        if self.path != "/file":
            self.send_error(404)
        elif start >= len(CONTENT):
            self.send_error(416)
        else:
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(CONTENT) - start))
            self.end_headers()
            self.wfile.write(CONTENT[start : start + self.server.limit])

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_file_is_downloaded_and_its_progress_told(server: Server, tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []

    class Told(Silence):
        def advance(self, done: int, total: int | None) -> None:
            told.append((done, total))

    download(server.url, tmp_path / "new" / "file", MD5, Told())
    assert (tmp_path / "new" / "file").read_bytes() == CONTENT
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


def test_a_broken_download_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.limit = 2_000_000
    for _ in range(2):
        with pytest.raises(SourceError, match=r"the connection broke after \d000000 of 5120000 bytes"):
            download(server.url, tmp_path / "file", MD5, Silence())
        assert not (tmp_path / "file").exists()
    download(server.url, tmp_path / "file", MD5, Silence())
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=2000000-", "bytes=4000000-"]


def test_a_server_that_cannot_resume_is_asked_from_the_start(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    download(server.url, tmp_path / "file", MD5, Silence())
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_part_of_another_file_is_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"something else")
    download(server.url, tmp_path / "file", MD5, Silence())
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_part_that_is_complete_is_taken(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    download(server.url, tmp_path / "file", MD5, Silence())
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_another_file_than_the_published_one_is_refused(server: Server, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="another checksum than the published one"):
        download(server.url, tmp_path / "file", "0" * 32, Silence())
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_says_no_or_is_not_there(server: Server, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="answered 404"):
        download(server.url + "s", tmp_path / "file", MD5, Silence())
    with pytest.raises(SourceError, match="cannot be reached"):
        download("http://127.0.0.1:9/file", tmp_path / "file", MD5, Silence())


def test_a_full_disk_is_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").symlink_to("/dev/full")
    with pytest.raises(DataError, match="no space is left on the disk"):
        download(server.url, tmp_path / "file", MD5, Silence())
