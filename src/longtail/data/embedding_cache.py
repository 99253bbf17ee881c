"""A cache of embeddings on disk, addressed by content: what an image becomes is looked up by its bytes.

    CACHE/KEY/0000.safetensors, 0001.safetensors, ...

KEY is a digest of all that embeds (weights, size, normalisation); a file holds the digests of some images and a row
for each. So a file that was renamed or copied is found again, and one that was changed is not. Files are written whole
as the work goes on, each with a checksum of its rows: a killed process goes on where it was, and a broken file counts
as absent.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from longtail._errors import DataError
from longtail._files import refuse_special, whole_file
from longtail.data.images import ArrayImages, FileImages, ImageDataset

# The cache forgets what was longest unused when it grows beyond this.
MOST_BYTES = 4 * 10**9


class EmbeddingCache:
    """The embeddings of one network.

    Args:
        key: all that embeds, as values that JSON can hold; other values, other embeddings.
        root: the folder of all; defaults to `LONGTAIL_CACHE`, else the user's cache folder.
    """

    def __init__(self, key: Mapping[str, Any], root: str | os.PathLike[str] | None = None) -> None:
        self.key = hashlib.sha256(repr(sorted(key.items())).encode()).hexdigest()[:32]
        self.folder = cache_root(root) / self.key
        self.problem = ""

    def read(self) -> dict[bytes, NDArray[np.float32]]:
        """All rows by the digests of their images; files that are broken are deleted."""
        found: dict[bytes, NDArray[np.float32]] = {}
        for file in sorted(self.folder.glob("*.safetensors")):
            try:
                with safe_open(file, "numpy") as content:
                    digests, rows = content.get_tensor("digests"), content.get_tensor("rows")
                    good = (content.metadata() or {}).get("sha256") == _checksum(digests, rows)
            except (OSError, SafetensorError, KeyError):
                good = False
            if good:
                found |= zip((bytes(digest) for digest in digests), rows, strict=True)
            else:
                self.problem = f"{file} was broken and is not used"
                file.unlink(missing_ok=True)
        return found

    def write(self, digests: Sequence[bytes], rows: NDArray[np.float32]) -> bool:
        """Add rows; False if the disk takes no more, with the reason in `problem`."""
        names = np.stack([np.frombuffer(digest, np.uint8) for digest in digests])
        packed = save({"digests": names, "rows": rows}, {"sha256": _checksum(names, rows)})
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            number = 1 + max((int(file.stem) for file in self.folder.glob("*.safetensors")), default=-1)
            with whole_file(self.folder / f"{number:06}.safetensors") as out:
                out.write(packed)
        except (DataError, OSError) as error:
            self.problem = f"the cache of embeddings cannot be written ({error}); going on without it"
            return False
        return True

    def trim(self, most_bytes: int = MOST_BYTES) -> None:
        """Mark this network's embeddings as used, and delete those of others until all fit."""
        if not self.folder.is_dir():
            return
        os.utime(self.folder)
        folders = sorted(self.folder.parent.iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
        total = 0
        for folder in folders:
            total += sum(file.stat().st_size for file in folder.glob("*"))
            if total > most_bytes and folder != self.folder:
                shutil.rmtree(folder, ignore_errors=True)


def cache_root(root: str | os.PathLike[str] | None = None) -> Path:
    """Where embeddings are kept: `root`, else `LONGTAIL_CACHE`, else the user's cache folder."""
    place = root or os.environ.get("LONGTAIL_CACHE")
    if place:
        return Path(place).expanduser() / "embeddings"
    from platformdirs import user_cache_path

    return user_cache_path("longtail") / "embeddings"


def image_digests(images: ImageDataset) -> list[bytes]:
    """The SHA-256 of each image: of its file, or of its pixels and their shape."""
    if isinstance(images, FileImages):
        return [_file_digest(images.path(index)) for index in range(len(images))]
    if isinstance(images, ArrayImages):
        shape = repr(images.images.shape[1:]).encode()
        return [hashlib.sha256(shape + image.tobytes()).digest() for image in images.images]
    return [hashlib.sha256(images[index][0].numpy().tobytes()).digest() for index in range(len(images))]


def _file_digest(file: Path) -> bytes:
    try:
        refuse_special(file)
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").digest()
    except OSError:  # replaced by another of its class when it is read
        return hashlib.sha256(b"unreadable" + os.fsencode(file)).digest()


def _checksum(digests: NDArray[np.uint8], rows: NDArray[np.float32]) -> str:
    return hashlib.sha256(digests.tobytes() + rows.tobytes()).hexdigest()
