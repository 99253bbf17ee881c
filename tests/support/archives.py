"""Archives for the tests of fetching."""

import io
import tarfile
from pathlib import Path
from typing import Literal


def write_tar(path: Path, members: dict[str, bytes], mode: Literal["w:gz", "w:xz"] = "w:gz") -> Path:
    """A compressed tar archive with these files."""
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path
