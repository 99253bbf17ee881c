"""Crops: which part of an image is seen, and at which size. The first step of every view.

| Crop | For | What it does |
|---|---|---|
| `PadCrop` | training on small images | pads with 0, crops at random, flips half of the time |
| `ResizedCrop` | training on large images | crops a random part of the area, resizes, flips half of the time |
| `CentreCrop` | evaluation | resizes the shorter side, crops the centre |

Resizing is bilinear with antialiasing. Each takes a uint8 batch (n, channels, height, width), or a list of
images of any size, and `draws` uniform numbers per image.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision.transforms.v2 import functional as F

from longtail.data.transforms.boxes import SMALLEST, random_boxes

Images = Tensor | Sequence[Tensor]


class Crop(Protocol):
    """Brings images to one size."""

    @property
    def size(self) -> int:
        """The height and width of the result."""
        ...

    @property
    def decode_size(self) -> int | None:
        """The pixels that the shorter side needs, so that a larger JPEG need not be decoded in full; None for all."""
        ...

    @property
    def draws(self) -> int:
        """The number of uniform numbers per image."""
        ...

    def __call__(self, images: Images, draws: NDArray[np.float64], /) -> Tensor:
        """Crop each image: uint8 of shape (n, channels, size, size)."""
        ...


@dataclass(frozen=True)
class PadCrop:
    """Pad by `padding` zeros on each side, crop `size` x `size` at random, flip half of the time.

    He et al., "Deep residual learning for image recognition", CVPR 2016, section 4.2, with padding 4 for 32 x 32
    images.
    """

    size: int
    padding: int
    flip: bool = True
    draws: ClassVar[int] = 3

    @property
    def decode_size(self) -> None:
        """None: it needs the whole image."""
        return None

    def __call__(self, images: Images, draws: NDArray[np.float64]) -> Tensor:
        """Crop each image; all must be `size` x `size`."""
        shapes = {tuple(image.shape[-2:]) for image in (images[:1] if isinstance(images, Tensor) else images)}
        if shapes - {(self.size, self.size)}:
            raise ValueError(f"images must be {self.size} x {self.size} to be cropped, got {sorted(shapes)}")
        batch = images if isinstance(images, Tensor) else torch.stack(list(images))
        n, channels = batch.shape[:2]
        wide, margin = self.size + 2 * self.padding, slice(self.padding, self.padding + self.size)
        padded = batch.new_zeros(n, channels, wide, wide)
        padded[:, :, margin, margin] = batch
        top, left = (draws[:, :2] * (2 * self.padding + 1)).astype(np.int64).T
        line = np.arange(self.size)
        # Where the pixels of the upper left crop come from, plain and flipped.
        places = np.stack([line[:, None] * wide + columns for columns in (line, line[::-1])])
        flipped = (draws[:, 2] < 0.5).astype(np.int64) * self.flip
        index = places.reshape(2, -1)[flipped] + (top * wide + left)[:, None]
        pixels = torch.from_numpy(index)[:, None].expand(-1, channels, -1)
        return padded.flatten(2).gather(2, pixels).view(n, channels, self.size, self.size)


@dataclass(frozen=True)
class ResizedCrop:
    """Crop at random (see `random_boxes`), resize to `size` x `size`, flip half of the time.

    The crop keeps `scale` of the area or more, 0.08 by default: Szegedy et al., "Going deeper with convolutions",
    CVPR 2015, section 6.
    """

    size: int
    flip: bool = True
    scale: float = SMALLEST
    draws: ClassVar[int] = 23

    @property
    def decode_size(self) -> int:
        """Twice the size: the average crop, 73 % of each side, then has more pixels than it is resized to."""
        return 2 * self.size

    def __call__(self, images: Images, draws: NDArray[np.float64]) -> Tensor:
        """Crop each image."""
        boxes = random_boxes(np.array([image.shape[-2:] for image in images]), draws[:, :22], self.scale)
        flipped = (draws[:, 22] < 0.5) & self.flip
        crops = []
        for image, (top, left, height, width), flip in zip(images, boxes.tolist(), flipped, strict=True):
            crop = image[:, top : top + height, left : left + width]
            crop = F.resize(crop, [self.size, self.size], antialias=True)
            crops.append(crop.flip(2) if flip else crop)
        return torch.stack(crops)


@dataclass(frozen=True)
class CentreCrop:
    """Resize the shorter side to `resize` pixels and crop the centre `size` x `size`."""

    size: int
    resize: int
    draws: ClassVar[int] = 0

    @property
    def decode_size(self) -> int:
        """The size that the image is resized to."""
        return self.resize

    def __call__(self, images: Images, _draws: NDArray[np.float64], /) -> Tensor:
        """Crop each image; nothing is random."""
        if isinstance(images, Tensor):
            return self._crop(images)
        return torch.stack([self._crop(image) for image in images])

    def _crop(self, image: Tensor) -> Tensor:
        crop: Tensor = F.center_crop(F.resize(image, [self.resize], antialias=True), [self.size, self.size])
        return crop
