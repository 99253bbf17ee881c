"""Downloads that resume where they were interrupted, verified by their checksum."""

import hashlib
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from longtail.data.sources import Report, SourceError, disk_error

_BLOCK = 1 << 20
_TIMEOUT = 20.0  # seconds without a byte


def download(url: str, target: Path, md5: str, report: Report) -> None:
    """Download `url` to `target`.

    The bytes are collected in `target` + ".part", which stays if the connection breaks: the next call asks the
    server for the rest, and starts again if the server cannot resume or if the checksum of the whole is wrong.

    Args:
        url: the address.
        target: the file to write; it appears once it is complete and verified.
        md5: the published checksum.
        report: shows the progress.
    """
    part = target.with_name(target.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    resumed = part.exists() and part.stat().st_size > 0
    _fetch(url, part, report)
    if _md5(part) != md5 and resumed:
        # The first part may be of another version: once more from the start.
        part.unlink()
        _fetch(url, part, report)
    if _md5(part) != md5:
        part.unlink()
        raise SourceError(f"the file from {url} does not have the published checksum")
    part.replace(target)


def _fetch(url: str, part: Path, report: Report) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
            if answer.status != 206:
                have = 0
            length = answer.headers.get("Content-Length")
            total = have + int(length) if length else None
            _write(answer.read, part, have, total, report)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing is left to send: the part is complete
            return
        raise SourceError(f"{url} answered {error.code} {error.reason}") from error
    except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise SourceError(f"{url} cannot be reached: {reason or type(error).__name__}") from error


def _write(read: Callable[[int], bytes], part: Path, have: int, total: int | None, report: Report) -> None:
    try:
        with part.open("ab" if have else "wb") as file:
            while block := read(_BLOCK):
                file.write(block)
                have += len(block)
                report.advance(have, total)
    except (TimeoutError, ConnectionError):
        raise
    except OSError as error:
        raise disk_error(part, error) from error
    if total is not None and have < total:
        raise SourceError(f"the connection broke after {have:,} of {total:,} bytes; the next fetch resumes there")


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
