"""A web server on this machine, for the tests of downloads."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer


class FileServer(HTTPServer):
    """Serves `files` by name; sends at most `limit` bytes of an answer, and honours Range if `ranges`."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.limit = 1 << 40
        self.ranges = True
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.ranges else 0
        content = self.server.files.get(self.path.removeprefix("/"))
        if content is None:
            self.send_error(404)
        elif start >= len(content):
            self.send_error(416)
        else:
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start : start + self.server.limit])

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@contextmanager
def serving(files: Mapping[str, bytes]) -> Iterator[FileServer]:
    server = FileServer(files)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
