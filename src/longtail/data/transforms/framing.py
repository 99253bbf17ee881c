"""Which part of an image is seen, and at which size: the first step of every view.

| Framing | For | What it does |
|---|---|---|
| `PadCrop` | training on small images | pads with 0, cuts out at random, mirrors half of the time |
| `ResizedCrop` | training on large images | cuts out a random part of 8 to 100 % and resizes it; mirrors |
| `CentreCrop` | evaluation | resizes the shorter side, cuts out the middle |

Resizing is bilinear with antialiasing. Each takes a uint8 batch (n, channels, height, width), or a list of
images of any size, and `draws` uniform numbers an image.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision.transforms.v2 import functional as F

from longtail.data.transforms.boxes import random_boxes

Images = Tensor | Sequence[Tensor]


class Framing(Protocol):
    """Cuts images to one size."""

    @property
    def size(self) -> int:
        """The height and width of the result."""
        ...

    @property
    def decode_size(self) -> int | None:
        """The pixels that the shorter side needs, so that a larger JPEG need not be decoded in full."""
        ...

    @property
    def draws(self) -> int:
        """How many uniform numbers an image needs."""
        ...

    def __call__(self, images: Images, draws: NDArray[np.float64], /) -> Tensor:
        """Frame each image: uint8 of shape (n, channels, size, size)."""
        ...


@dataclass(frozen=True)
class PadCrop:
    """Pad by `padding` zeros on each side, cut out `size` x `size` anywhere, mirror half of the time.

    He et al., "Deep residual learning for image recognition", CVPR 2016, section 4.2, with padding 4 at 32
    x 32.
    """

    size: int
    padding: int
    flip: bool = True
    draws: ClassVar[int] = 3

    @property
    def decode_size(self) -> None:
        """All of the image."""
        return None

    def __call__(self, images: Images, draws: NDArray[np.float64]) -> Tensor:
        """Frame each image; all must be `size` x `size`."""
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
        # Where the pixels of the upper left cut come from, as it is and mirrored.
        places = np.stack([line[:, None] * wide + columns for columns in (line, line[::-1])])
        mirrored = (draws[:, 2] < 0.5).astype(np.int64) * self.flip
        index = places.reshape(2, -1)[mirrored] + (top * wide + left)[:, None]
        pixels = torch.from_numpy(index)[:, None].expand(-1, channels, -1)
        return padded.flatten(2).gather(2, pixels).view(n, channels, self.size, self.size)


@dataclass(frozen=True)
class ResizedCrop:
    """Cut out a random part (see `random_boxes`), resize it to `size` x `size`, mirror half of the time.

    Szegedy et al., "Going deeper with convolutions", CVPR 2015, section 6.
    """

    size: int
    flip: bool = True
    draws: ClassVar[int] = 23

    @property
    def decode_size(self) -> int:
        """Twice the size, which gives the mean part, 73 % of each side, more pixels than are asked for."""
        return 2 * self.size

    def __call__(self, images: Images, draws: NDArray[np.float64]) -> Tensor:
        """Frame each image."""
        boxes = random_boxes(np.array([image.shape[-2:] for image in images]), draws[:, :22])
        mirrored = (draws[:, 22] < 0.5) & self.flip
        framed = []
        for image, (top, left, height, width), mirror in zip(images, boxes.tolist(), mirrored, strict=True):
            part = image[:, top : top + height, left : left + width]
            part = F.resize(part, [self.size, self.size], antialias=True)
            framed.append(part.flip(2) if mirror else part)
        return torch.stack(framed)


@dataclass(frozen=True)
class CentreCrop:
    """Resize the shorter side to `resize` pixels and cut out the middle `size` x `size`."""

    size: int
    resize: int
    draws: ClassVar[int] = 0

    @property
    def decode_size(self) -> int:
        """As many pixels as it is resized to."""
        return self.resize

    def __call__(self, images: Images, _draws: NDArray[np.float64], /) -> Tensor:
        """Frame each image; nothing is drawn."""
        if isinstance(images, Tensor):
            return self._frame(images)
        return torch.stack([self._frame(image) for image in images])

    def _frame(self, image: Tensor) -> Tensor:
        framed: Tensor = F.center_crop(F.resize(image, [self.resize], antialias=True), [self.size, self.size])
        return framed
