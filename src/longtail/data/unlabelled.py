"""Unlabelled images, for prediction.

The user names files, folders (searched at any depth), shell patterns (`birds/*.jpg`, `**` for any depth) or CSV
files with a column `path`, whose paths are relative to the CSV's folder.

Unlike a training image, one that cannot be decoded is never replaced by another: a blank image takes its place,
and it is marked so that the predictions leave it out.
"""

import csv
import glob
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from longtail._errors import DataError
from longtail.data.folder import Folder, missing, not_readable

if TYPE_CHECKING:
    import torch

    from longtail.data.images import ImageDataset


def find_images(sources: Iterable[str]) -> list[str]:
    """The image files that `sources` name, in order.

    Raises:
        DataError: a source does not exist, cannot be read, or holds no image.
    """
    found: list[str] = []
    for source in sources:
        try:
            images = list(_images_of(source))
        except OSError as error:
            raise not_readable(source, error) from error
        if not images:
            raise DataError(
                f"{source} holds no images",
                "there is nothing to predict",
                "name an image, a folder of images, a pattern such as 'birds/*.jpg', or a CSV with a column path",
                code="no-images",
                paths=[source],
            )
        found += images
    return found


def _images_of(source: str) -> Iterator[str]:
    path = Path(source)
    if path.is_dir():
        yield from (str(path / name) for name in Folder(path).images_below())
    elif path.suffix.lower() == ".csv" and path.is_file():
        yield from _listed(path)
    elif path.exists():
        yield source
    elif glob.has_magic(source):
        # Like a shell: all that match, except hidden files.
        matches = Path(path.anchor or ".").glob(str(path.relative_to(path.anchor)))
        yield from (str(file) for file in sorted(matches) if file.is_file() and not file.name.startswith("."))
    else:
        raise missing(path)


def _listed(file: Path) -> Iterator[str]:
    """The column `path` of a CSV."""
    try:
        with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
            reader = csv.DictReader(lines)
            reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or ()]
            if "path" not in reader.fieldnames:
                raise DataError(
                    f"{file} has no column 'path'; its first line is {','.join(reader.fieldnames)!r}",
                    "it says where each image is",
                    "name the column of the image files 'path' in the first line",
                    code="missing-column",
                    paths=[str(file)],
                )
            for row in reader:
                name = (row["path"] or "").strip()
                if name:
                    yield str(file.parent / name)
    except csv.Error as error:
        raise DataError(
            f"{file} cannot be read as a CSV: {error}",
            "it says where each image is",
            "save it as UTF-8 text, separated by commas",
            code="bad-csv",
            paths=[str(file)],
        ) from error


class UnlabelledImages:
    """Image files as a data set whose labels are all 0, for `eval_loader`.

    Args:
        paths: the files.
        channels: 3 for RGB; 1 converts each image to grey, for models of grey images.
        size: the number of pixels that the shorter side needs; see `decode_image`.
    """

    def __init__(self, paths: Sequence[str], *, channels: int, size: int | None = None) -> None:
        import torch

        self.paths, self.channels, self.size = list(paths), channels, size
        self.targets: NDArray[np.int64] = np.zeros(len(paths), dtype=np.int64)
        self._unreadable = torch.zeros(len(paths), dtype=torch.bool)
        self._unreadable.untyped_storage().share_memory_()  # loader processes write into it

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int, /) -> "tuple[torch.Tensor, int]":
        import torch

        from longtail.data.decode_image import UNREADABLE, decode_image

        try:
            pixels = torch.from_numpy(decode_image(self.paths[index], self.size)).permute(2, 0, 1)
        except UNREADABLE:
            self._unreadable[index] = True
            pixels = torch.zeros(3, 8, 8, dtype=torch.uint8)
        return as_channels(pixels, self.channels), 0

    def select(self, indices: ArrayLike, /) -> "UnlabelledImages":
        """The images at `indices`, in that order."""
        chosen = np.asarray(indices, dtype=np.int64)
        return UnlabelledImages([self.paths[i] for i in chosen], channels=self.channels, size=self.size)

    @property
    def unreadable(self) -> list[int]:
        """The images that could not be decoded so far."""
        return [int(index) for index in self._unreadable.nonzero()]


class Recoloured:
    """Labelled images with another number of channels, for a model that was trained on that number.

    Args:
        images: the data set.
        channels: 1 for grey, 3 for RGB.
        size: for image files, the number of pixels that the shorter side needs; see `decode_image`.
    """

    def __init__(self, images: "ImageDataset", channels: int, size: int | None = None) -> None:
        from longtail.data.images import FileImages

        self.images = images.with_size(size) if isinstance(images, FileImages) else images
        self.channels = channels

    @property
    def targets(self) -> NDArray[np.int64]:
        """The label of every image."""
        return self.images.targets

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int, /) -> "tuple[torch.Tensor, int]":
        pixels, target = self.images[index]
        return as_channels(pixels, self.channels), target

    def select(self, indices: ArrayLike, /) -> "Recoloured":
        """The images at `indices`, in that order."""
        return Recoloured(self.images.select(indices), self.channels)


def as_channels(pixels: "torch.Tensor", channels: int) -> "torch.Tensor":
    """A uint8 image (1 or 3, height, width) in grey or in RGB.

    Grey is Pillow's: (19595 R + 38470 G + 7471 B) / 65536, rounded, which leaves a grey image unchanged.
    """
    import torch

    if len(pixels) == channels:
        return pixels
    if channels == 3:
        return pixels.expand(3, -1, -1)
    weights = torch.tensor([19595, 38470, 7471], dtype=torch.int32).view(3, 1, 1)
    return ((pixels.int() * weights).sum(0, keepdim=True).add_(1 << 15) >> 16).to(torch.uint8)
