"""Labelled images: in memory as one array, or as files that are decoded when they are read.

Both are map-style datasets with the interface `ImageDataset`: item `i` is a uint8 image of shape (channels,
height, width) and its label. Images come as they are stored: a grey set keeps its one channel, and files keep
their height and width. Cropping, resizing and normalising belong to the views.

Both are cheap to send to loader processes: an array goes through shared memory, and a list of paths is one block
of bytes rather than a million Python strings.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, overload, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from longtail._errors import DataError, counted

if TYPE_CHECKING:
    import torch


@runtime_checkable
class ImageDataset(Protocol):
    """A map-style dataset of uint8 images of shape (channels, height, width) and integer labels."""

    @property
    def targets(self) -> NDArray[np.int64]:
        """The label of every image, without decoding any."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> "tuple[torch.Tensor, int]": ...

    def select(self, indices: ArrayLike, /) -> Self:
        """The images at `indices`, in that order, as a dataset of the same kind."""
        ...


class ArrayImages:
    """Images in memory.

    Args:
        images: uint8, shape (number, height, width, channels) with 1 or 3 channels.
        targets: the label of each image, 0 or more.

    Example:
        >>> data = ArrayImages(np.zeros((4, 8, 8, 1), np.uint8), [0, 0, 1, 2])
        >>> data[3][0].shape, data[3][1], data.select([3, 0]).targets.tolist()
        (torch.Size([1, 8, 8]), 2, [2, 0])
    """

    def __init__(self, images: NDArray[np.uint8], targets: ArrayLike) -> None:
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3):
            raise ValueError(
                "images must be uint8 of shape (number, height, width, 1 or 3), "
                f"got {images.dtype} of shape {images.shape}"
            )
        self.images = images
        self.targets = _as_targets(targets, len(images))
        self._shared: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int, /) -> "tuple[torch.Tensor, int]":
        import torch

        # A copy, so that an in-place transform cannot change the stored image.
        return torch.from_numpy(self.images[index].transpose(2, 0, 1).copy()), int(self.targets[index])

    def select(self, indices: ArrayLike, /) -> "ArrayImages":
        """A copy of the images at `indices`, so that the memory of the others can be freed."""
        chosen = _as_indices(indices)
        return ArrayImages(self.images[chosen], self.targets[chosen])

    def __getstate__(self) -> "dict[str, torch.Tensor]":
        import torch

        # Tensors go to a spawned process through shared memory, NumPy arrays as bytes through a pipe. Keeping
        # the tensor lets all workers map the same memory.
        if self._shared is None:
            self._shared = torch.from_numpy(np.require(self.images, requirements=["C", "W"]))
        return {"images": self._shared, "targets": torch.from_numpy(self.targets)}

    def __setstate__(self, state: "dict[str, torch.Tensor]") -> None:
        self._shared = state["images"]
        self.images, self.targets = state["images"].numpy(), state["targets"].numpy()


class FileImages:
    """Images that are decoded from their files when they are read, upright and in RGB (see `decode_image`).

    A file that cannot be decoded is replaced by the next one of its class, so that an item depends on its index
    alone, and is marked in `unreadable`, which all loader processes share. If more than 1 % of the files (and
    more than one) or all of a class cannot be decoded, a `DataError` says so: nobody should train on less data
    than they think.

    Args:
        paths: the files, relative to `root` or absolute.
        targets: the label of each file, 0 or more.
        root: the folder of relative paths.
        size: the number of pixels that the shorter side needs, so that a JPEG may be decoded at a fraction of
            its size; None decodes in full.
    """

    MOST_UNREADABLE = 0.01

    def __init__(
        self,
        paths: Sequence[str | PathLike[str]],
        targets: ArrayLike,
        *,
        root: str | PathLike[str] = ".",
        size: int | None = None,
    ) -> None:
        self._fill(_PathBlock.pack(paths), _as_targets(targets, len(paths)), Path(root), size)

    def _fill(self, paths: "_PathBlock", targets: NDArray[np.int64], root: Path, size: int | None) -> None:
        import torch

        if size is not None and size < 1:
            raise ValueError(f"size must be at least 1, got {size}")
        self.targets, self.root, self.size = targets, root, size
        self._paths = paths
        self._unreadable = torch.zeros(len(targets), dtype=torch.bool)
        self._unreadable.untyped_storage().share_memory_()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int, /) -> "tuple[torch.Tensor, int]":
        import torch

        from longtail.data.decode_image import UNREADABLE, decode_image

        index = range(len(self))[index]
        target = int(self.targets[index])
        for candidate in self._candidates(index):
            try:
                return torch.from_numpy(decode_image(self.path(candidate), self.size)).permute(2, 0, 1), target
            except UNREADABLE:
                self._unreadable[candidate] = True
                self._refuse_too_many()
        raise DataError(
            f"no image of class {target} can be read, for example {self.path(index)}",
            "a class without images cannot be learned",
            "list the broken files with: longtail check DATA --full",
            code="unreadable",
        )

    def path(self, index: int) -> Path:
        """The file of image `index`."""
        return self.root / self._paths[index]

    @property
    def paths(self) -> Sequence[str]:
        """The files, relative to `root` or absolute."""
        return self._paths

    @property
    def unreadable(self) -> list[int]:
        """The images that could not be decoded so far, in any process."""
        return [int(index) for index in self._unreadable.nonzero()]

    def select(self, indices: ArrayLike, /) -> "FileImages":
        """The images at `indices`; nothing is decoded."""
        chosen = _as_indices(indices)
        part = FileImages.__new__(FileImages)
        part._fill(self._paths.select(chosen), self.targets[chosen], self.root, self.size)
        return part

    def with_size(self, size: int | None) -> "FileImages":
        """The same images, decoded for another size."""
        part = FileImages.__new__(FileImages)
        part._fill(self._paths, self.targets, self.root, size)
        return part

    def _candidates(self, index: int) -> Iterator[int]:
        """`index`, then the others of its class in order, without those known to be unreadable."""
        if not self._unreadable[index]:
            yield index
        members = np.flatnonzero(self.targets == self.targets[index])
        for other in np.roll(members, -int(np.searchsorted(members, index)))[1:]:
            if not self._unreadable[other]:
                yield int(other)

    def _refuse_too_many(self) -> None:
        found = self.unreadable
        if len(found) > max(1, int(self.MOST_UNREADABLE * len(self))):
            raise DataError(
                f"{len(found):,} of {counted(len(self), 'image')} cannot be read, for example {self.path(found[0])}",
                f"leaving out more than {self.MOST_UNREADABLE:.0%} of the images changes what is learned",
                "list them with: longtail check DATA --full",
                code="unreadable",
            )


class _PathBlock(Sequence[str]):
    """Paths as one block of bytes: fast to pickle, and without reference counts, which copy memory after a fork."""

    def __init__(self, block: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self._block, self._ends = block, ends

    @classmethod
    def pack(cls, paths: Iterable[str | PathLike[str]]) -> "_PathBlock":
        names = [os.fsencode(path) for path in paths]
        ends = np.cumsum(np.fromiter((len(name) for name in names), np.int64, len(names)))
        return cls(np.frombuffer(b"".join(names), np.uint8), ends)

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        i = range(len(self))[index]
        return os.fsdecode(self._block[self._ends[i - 1] if i else 0 : self._ends[i]].tobytes())

    def select(self, indices: NDArray[np.int64]) -> "_PathBlock":
        return self.pack(self[int(i)] for i in indices)


def _as_targets(targets: ArrayLike, number: int) -> NDArray[np.int64]:
    labels = np.array(targets)
    if labels.shape != (number,) or (number and not np.issubdtype(labels.dtype, np.integer)):
        raise ValueError(f"targets must be {number} integers, got {labels.dtype} of shape {labels.shape}")
    if number and labels.min() < 0:
        raise ValueError(f"targets must be 0 or more, got {labels.min()}")
    return labels.astype(np.int64)


def _as_indices(indices: ArrayLike) -> NDArray[np.int64]:
    chosen = np.asarray(indices)
    if chosen.ndim != 1 or (chosen.size and not np.issubdtype(chosen.dtype, np.integer)):
        raise ValueError(f"indices must be a list of integers, got {chosen.dtype} of shape {chosen.shape}")
    return chosen.astype(np.int64)
