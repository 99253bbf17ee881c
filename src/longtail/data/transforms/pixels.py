"""Move pixels and look up their values, a whole batch at a time: what most augmentations come down to.

A batch is uint8 of shape (n, channels, height, width). Each image has its own row of parameters, so each may be
changed in its own way.
"""

import torch
from torch import Tensor


def gather_pixels(images: Tensor, index: Tensor) -> Tensor:
    """Each new pixel is one of the old: out[n, c].flat[p] = images[n, c].flat[index[n, p]].

    Args:
        images: (n, channels, height, width).
        index: int64 of shape (n, height · width); the value height · width stands for a pixel outside the image,
            which is 0.
    """
    n, channels, height, width = images.shape
    pixels = images.new_zeros(n, channels, height * width + 1)
    pixels[:, :, :-1] = images.flatten(2)
    return pixels.gather(2, index[:, None].expand(-1, channels, -1)).view(n, channels, height, width)


def look_up(images: Tensor, tables: Tensor) -> Tensor:
    """Each pixel is replaced by its value's entry: out[n, c, y, x] = tables[n, c, images[n, c, y, x]].

    Args:
        images: (n, channels, height, width).
        tables: uint8 of shape (n, channels, 256), or (n, 1, 256) for the same table on all channels.
    """
    values = images.flatten(2).to(torch.int64)
    return tables.expand(-1, images.shape[1], -1).gather(2, values).view(images.shape)
