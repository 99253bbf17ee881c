"""Balanced sets that fit in memory, made long-tailed: what CIFAR, Fashion-MNIST and the digits share.

A set is read from the first of its layouts that is on disk and holds the true images. They are verified by the
SHA-256 of the decoded arrays, whatever the file format. The order of the training images counts, because index
lists refer to it; that of the test images does not, because no accuracy depends on it.
"""

import contextlib
import hashlib
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail._errors import DataError, UsageError, counted
from longtail.data.images import ArrayImages
from longtail.data.inventory import Inventory
from longtail.data.sources import DISK_ERRORS, Report, SourceError, disk_error, refuse_full_disk
from longtail.data.splits import checksum, exponential_counts, long_tail_indices


class Arrays(NamedTuple):
    """Training and test images as they are published."""

    train: ArrayImages
    test: ArrayImages


@dataclass(frozen=True)
class Layout:
    """One way in which a set lies on disk.

    Args:
        folder: relative to the root, or absolute for a system folder.
        files: the files that must be there for the layout to count as present.
        read: reads the folder.
    """

    folder: str
    files: tuple[str, ...]
    read: Callable[[Path], Arrays]


@dataclass(frozen=True)
class Source:
    """A place to fetch a set from: `bring` writes one of the layouts below the folder it is given."""

    name: str
    bring: Callable[[Path, Path, Report], None]


@dataclass(frozen=True)
class ArraySet:
    """A balanced set in memory, of which a long-tailed training subset is drawn.

    Args:
        name: the registered name.
        classes: the names of the classes.
        mean: the mean of each channel, for values between 0 and 1.
        std: the standard deviation of each channel.
        imbalance_factor: the default.
        checksums: SHA-256 of the training and of the test images.
        layouts: in the order in which they are tried.
        sources: in the order in which they are tried.
        size: the bytes of disk space that a fetch needs.
        frozen: SHA-256 of the index list of seed 0, by imbalance factor.
    """

    name: str
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    imbalance_factor: float
    checksums: tuple[str, str]
    layouts: tuple[Layout, ...]
    sources: tuple[Source, ...] = ()
    size: int = 0
    frozen: Mapping[float, str] = field(default_factory=dict)

    def find(self, root: Path, imbalance_factor: float | None, seed: int) -> Inventory:
        """Read the set below `root` and draw its long-tailed training images."""
        factor = self.imbalance_factor if imbalance_factor is None else imbalance_factor
        arrays = self.load(root)
        smallest = int(np.bincount(arrays.train.targets, minlength=len(self.classes)).min())
        try:
            counts = exponential_counts(smallest, len(self.classes), factor)
        except ValueError as error:
            raise UsageError(
                str(error), f"{self.name} has {counted(smallest, 'image')} per class", f"try {self.name}:10"
            ) from error
        indices = long_tail_indices(arrays.train.targets, counts, seed)
        if seed == 0 and self.frozen.get(factor, checksum(indices)) != checksum(indices):
            raise DataError(
                f"the images drawn for {self.name}:{factor:g} are not the frozen ones",
                "results could not be compared with those of other machines",
                "please report this with the output of: pip list",
                code="checksum-mismatch",
            )
        return Inventory(
            f"{self.name}:{factor:g}",
            self.classes,
            {"train": arrays.train.select(indices), "test": arrays.test},
            self.mean,
            self.std,
            benchmark=True,
        )

    def load(self, root: Path) -> Arrays:
        """Read and verify all images below `root`."""
        wrong = []
        for layout in self.layouts:
            folder = root / layout.folder
            if not all((folder / file).is_file() for file in layout.files):
                continue
            try:
                arrays = layout.read(folder)
                self._verify(arrays)
            except (SourceError, OSError, ValueError, KeyError, EOFError) as error:
                wrong.append((folder, error))
                continue
            return arrays
        if wrong:
            raise DataError(
                f"{wrong[0][0]} does not hold {self.name}: {wrong[0][1]}",
                "results on other images could not be compared with published ones",
                f"fetch it again with: {self._fetch_command(root)}",
                code="checksum-mismatch",
                paths=[str(folder) for folder, _ in wrong],
            )
        raise DataError(
            f"{self.name} is not in {root}",
            "nothing is downloaded unless you ask for it",
            f"fetch it with: {self._fetch_command(root)}",
            code="not-fetched",
            paths=[str(root)],
        )

    def fetch(self, root: Path, report: Report) -> str:
        """Bring the set to `root` from the first source that has it; a set that is there already is kept."""
        try:
            self.load(root)
        except DataError as error:
            report.say(error.what)
        else:
            return "already there"
        refuse_full_disk(root, self.size)
        tried = []
        for source in self.sources:
            report.say(f"trying {source.name}")
            try:
                self._bring(source, root, report)
            except SourceError as error:
                tried.append(f"{source.name}: {error}")
                report.say(tried[-1])
            else:
                return source.name
        raise DataError(
            f"{self.name} could not be fetched ({'; '.join(tried) or 'it has no source'})",
            "no source sent the true images",
            f"try again, or put the files in {' or '.join(dict.fromkeys(self._places(root)))} yourself",
            code="fetch-failed",
        )

    def _bring(self, source: Source, root: Path, report: Report) -> None:
        """Fetch into a folder of its own, verify what came, and only then move it into place."""
        try:
            staging = Path(tempfile.mkdtemp(prefix=".fetching-", dir=root))
        except OSError as error:
            raise disk_error(root, error) from error
        try:
            source.bring(staging, root, report)
            report.say("verifying")
            self.load(staging)
            self._move(staging, root)
        except DataError as error:
            if error.code in ("checksum-mismatch", "not-fetched"):
                raise SourceError(error.what) from error
            raise
        except OSError as error:
            if error.errno in DISK_ERRORS:
                raise disk_error(root, error) from error
            raise SourceError(f"what it sent is not the data set: {error}") from error
        except (ValueError, KeyError) as error:
            raise SourceError(f"what it sent is not the data set: {error}") from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            with contextlib.suppress(OSError):  # it stays while it holds part of an interrupted download
                (root / ".downloads").rmdir()

    def _fetch_command(self, root: Path) -> str:
        return shlex.join(["longtail", "data", "fetch", self.name, "--root", str(root)])

    def _places(self, root: Path) -> list[str]:
        return [str(root / layout.folder) for layout in self.layouts]

    def _move(self, staging: Path, root: Path) -> None:
        """Move the fetched folders into place, each by one rename, so that nobody sees half a set."""
        for layout in self.layouts:
            fetched, place = staging / layout.folder, root / layout.folder
            if layout.folder and fetched.is_dir() and fetched != place:
                place.parent.mkdir(parents=True, exist_ok=True)
                if place.exists():
                    place.rename(staging / "replaced")
                fetched.rename(place)

    def _verify(self, arrays: Arrays) -> None:
        for part, images, expected in zip(("training", "test"), arrays, self.checksums, strict=True):
            found = array_checksum(images.images, images.targets, ordered=part == "training")
            if found != expected:
                raise SourceError(f"its {part} images have SHA-256 {found[:12]}..., not {expected[:12]}...")


def array_checksum(images: NDArray[np.uint8], targets: NDArray[np.int64], *, ordered: bool) -> str:
    """The SHA-256 of images with their labels: in their order if `ordered`, else the same for any order."""
    pixels = images.reshape(len(images), -1)
    rows = np.ascontiguousarray(np.column_stack([targets.astype(np.uint8), pixels]))
    if not ordered:
        rows = np.sort(rows.view(np.dtype((np.void, rows.shape[1]))), axis=0)
    return hashlib.sha256(rows.tobytes()).hexdigest()
