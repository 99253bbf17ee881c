"""Unlabelled images, for prediction.

The user names files, folders (searched at any depth), shell patterns (`birds/*.jpg`, `**` for any depth) or CSV
files with a column `path`, whose paths are relative to the CSV's folder.

Unlike a training image, one that cannot be decoded is never replaced by another: a blank image takes its place,
and it is marked so that the predictions leave it out.
"""

import glob
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageOps

from longtail._errors import DataError, UsageError
from longtail.data.csv_table import CsvTable
from longtail.data.decode_image import to_rgb
from longtail.data.folder import Folder, missing, not_readable

if TYPE_CHECKING:
    import torch

    from longtail.data.images import ImageDataset


# One image, or what names several.
Source = str | PathLike[str] | Image.Image | NDArray[np.uint8]


def find_images(sources: Iterable[str], *, path_column: str | None = None) -> list[str]:
    """The image files that `sources` name, in order.

    Args:
        sources: files, folders, patterns, CSVs.
        path_column: of a CSV, the name of the column of image files; defaults to its usual names, see `CsvTable`.

    Raises:
        DataError: a source does not exist, cannot be read, or holds no image.
    """
    found: list[str] = []
    for source in sources:
        try:
            images = list(_images_of(source, path_column))
        except OSError as error:
            raise not_readable(source, error) from error
        except ValueError as error:  # a null byte, or a pattern such as **.jpg, which says nothing
            raise DataError(
                f"{source} is neither a path nor a pattern: {error}",
                "there is nothing to predict",
                "write ** between slashes, as in 'birds/**/*.jpg'",
                code="bad-path",
                paths=[source],
            ) from error
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


def _images_of(source: str, path_column: str | None) -> Iterator[str]:
    path = Path(source)
    if path.is_dir():
        yield from (str(path / name) for name in Folder(path).images_below())
    elif path.suffix.lower() in (".csv", ".tsv") and path.is_file():
        yield from _listed(path, path_column)
    elif path.exists():
        yield source
    elif glob.has_magic(source):
        # Like a shell: all that match, except hidden files.
        matches = Path(path.anchor or ".").glob(str(path.relative_to(path.anchor)))
        yield from (str(file) for file in sorted(matches) if file.is_file() and not file.name.startswith("."))
    else:
        raise missing(path)


def _listed(file: Path, path_column: str | None) -> Iterator[str]:
    """The column of image files of a CSV."""
    table = CsvTable(file, {"path": path_column}, errors="surrogateescape")
    place = table.column("path")
    for _, row in table.rows():
        if name := row[place].strip():
            yield str(file.parent / name)


def as_sources(images: Source | Iterable[Source]) -> list[str | NDArray[np.uint8]]:
    """Image files and pixels that `images` names, in order: folders, patterns and CSVs become their files.

    Args:
        images: paths, Pillow images, or arrays, one or many. An array is uint8, (height, width), (height, width, 1 or
            3), or (number, height, width, 1 or 3).

    Raises:
        DataError: a folder, pattern or CSV holds no image. A file that does not exist is kept, to be told of later.
        UsageError: something is no image.
    """
    found: list[str | NDArray[np.uint8]] = []
    single = isinstance(images, str | PathLike | Image.Image | np.ndarray)
    items: list[Any] = list(images) if not single and isinstance(images, Iterable) else [images]
    for item in items:
        if isinstance(item, str | PathLike):
            name = fspath(item)
            several = Path(name).is_dir() or Path(name).suffix.lower() in (".csv", ".tsv")
            pattern = glob.has_magic(name) and not Path(name).exists()
            found += find_images([name]) if several or pattern else [name]
        elif isinstance(item, Image.Image):
            found.append(np.array(to_rgb(ImageOps.exif_transpose(item))))
        elif isinstance(item, np.ndarray):
            found += _pixels_of(item)
        else:
            raise UsageError(
                f"images must be paths, Pillow images or NumPy arrays, got {type(item).__name__}",
                "",
                "for a tensor (channels, height, width), pass tensor.permute(1, 2, 0).numpy()",
            )
    return found


def _pixels_of(array: NDArray[Any]) -> list[NDArray[np.uint8]]:
    several = array if array.ndim == 4 else array[None]
    if several.ndim == 3:
        several = several[..., None]
    if array.dtype != np.uint8 or array.ndim not in (2, 3, 4) or several.shape[-1] not in (1, 3) or not array.size:
        raise UsageError(
            f"an array of images must be uint8, (height, width) or (height, width, 3), got {array.dtype} {array.shape}",
            "other numbers could be of any range and order",
            "pass values from 0 to 255 as uint8, channels last",
        )
    return [np.broadcast_to(image, (*image.shape[:2], 3)) for image in several]


class UnlabelledImages:
    """Images as a data set whose labels are all 0, for `eval_loader`.

    Args:
        paths: the files, or pixels (height, width, 3).
        channels: 3 for RGB; 1 converts each image to grey, for models of grey images.
        size: the number of pixels that the shorter side needs; see `decode_image`.
    """

    def __init__(self, paths: Sequence[str | NDArray[np.uint8]], *, channels: int, size: int | None = None) -> None:
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
            item = self.paths[index]
            given = decode_image(item, self.size) if isinstance(item, str) else item.copy()
            pixels = torch.from_numpy(given).permute(2, 0, 1)
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
