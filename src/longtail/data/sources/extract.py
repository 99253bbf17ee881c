"""Unpack archives into one folder, and never outside it."""

import io
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from longtail._errors import DataError
from longtail.data.sources import SourceError, disk_error, refuse_full_disk


def extract_tar(archive: Path | IO[bytes], folder: Path) -> None:
    """Unpack the regular files of a tar archive, compressed or not, into `folder`.

    An archive with a member that would be written elsewhere (an absolute path, `..`) is refused as a whole: it
    cannot be the published one. Links and devices are left out.
    """
    try:
        with tarfile.open(archive) if isinstance(archive, Path) else tarfile.open(fileobj=archive, mode="r:*") as tar:
            members = [member for member in tar if member.isfile()]
            for member in members:
                _refuse_escape(member.name, archive)
            refuse_full_disk(folder, sum(member.size for member in members))
            for member in members:
                target = folder / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                content = tar.extractfile(member)
                if content is not None:
                    with content, target.open("wb") as file:
                        shutil.copyfileobj(content, file)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise SourceError(f"{_name(archive)} is not a complete archive: {error}") from error
    except OSError as error:
        if error.errno is None:  # what gzip and bz2 raise for broken streams
            raise SourceError(f"{_name(archive)} is not a complete archive: {error}") from error
        raise disk_error(folder, error) from error


def extract_deb(package: Path, folder: Path) -> None:
    """Unpack the files of a Debian package: an `ar` archive that holds `data.tar.xz` or the like."""
    with package.open("rb") as file:
        for name, size in _ar_members(file):
            if name.startswith("data.tar"):
                if size > package.stat().st_size:
                    raise SourceError(f"{package.name} is not a complete archive: {name} has {size:,} bytes")
                extract_tar(io.BytesIO(file.read(size)), folder)
                return
    raise SourceError(f"{package.name} is not a Debian package")


def _ar_members(file: IO[bytes]) -> Iterator[tuple[str, int]]:
    """The name and size of each member, with the file positioned at its first byte."""
    if file.read(8) != b"!<arch>\n":
        return
    while len(header := file.read(60)) == 60:
        size, start = _ar_size(header[48:58]), file.tell()
        yield header[:16].decode("ascii", "replace").strip().rstrip("/"), size
        file.seek(start + size + size % 2)


def _ar_size(field: bytes) -> int:
    """The size in a header; one below 0 would lead back to the same header for ever."""
    if not field.strip().isdigit():
        raise SourceError(f"the package is not a complete archive: a member has the size {field!r}")
    return int(field)


def _refuse_escape(name: str, archive: Path | IO[bytes]) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name:
        raise DataError(
            f"{_name(archive)} holds {name!r}, which would be written outside the folder it is unpacked in",
            "such an archive can overwrite any of your files, so nothing was unpacked",
            "delete it, and download it from its official site",
            code="unsafe-archive",
            paths=[name],
        )


def _name(archive: Path | IO[bytes]) -> str:
    return archive.name if isinstance(archive, Path) else "the package"
