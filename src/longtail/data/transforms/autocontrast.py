"""Autocontrast and equalize: each channel of each image is stretched by a table made from its own values.

Both map each of the 256 values to a new one. So an image is read twice, for its histogram or range and to look
up the new values, and the arithmetic is on 256 numbers alone. The results are those of torchvision's
`autocontrast` and `equalize` on uint8 tensors.
"""

import torch
from torch import Tensor

from longtail.data.transforms.pixels import look_up


def autocontrast(images: Tensor, _: Tensor) -> Tensor:
    """Map each channel's range to 0 ... 255; a channel of a single value is unchanged.

    out = (image − min) / ((max − min) / 255), truncated to an integer.
    """
    pixels = images.flatten(2)
    low = pixels.amin(2, keepdim=True).float()
    span = pixels.amax(2, keepdim=True).float() - low
    flat = span == 0
    values = torch.arange(256.0).expand(*low.shape[:2], -1)
    tables = (values - low.masked_fill(flat, 0)) / span.mul_(1 / 255).masked_fill_(flat, 1)
    return look_up(images, tables.clamp_(0, 255).to(torch.uint8))


def equalize(images: Tensor, _: Tensor) -> Tensor:
    """Spread each channel's values so that its histogram is flat.

    With h the histogram, the step s = (pixels below the largest value present) // 255 and everything in
    integers, value v becomes (Σ_{u < v} h_u + s // 2) // s, at most 255. A channel with s = 0 is unchanged.
    This is Pillow's rule.
    """
    n, channels = images.shape[:2]
    first = torch.arange(n * channels, dtype=torch.int32).mul_(256).view(n, channels, 1)
    histogram = torch.bincount((images.flatten(2) + first).flatten(), minlength=n * channels * 256)
    below = histogram.view(n, channels, 256).cumsum(2).roll(1, 2)
    below[..., 0] = 0
    largest = images.flatten(2).amax(2, keepdim=True).to(torch.int64)
    step = below.gather(2, largest) // 255
    tables = ((below + step // 2) // step.clamp(min=1)).clamp_(max=255)
    tables = torch.where(step == 0, torch.arange(256), tables).to(torch.uint8)
    return look_up(images, tables)
