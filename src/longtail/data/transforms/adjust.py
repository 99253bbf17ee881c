"""Color, contrast and sharpness: how far an image is from a degenerate one that is grey, flat or blurred.

    out = factor · image + (1 − factor) · degenerate,  clipped to 0 ... 255 and truncated to an integer

Factor 1 leaves the image unchanged, 0 gives the degenerate one, and above 1 moves away from it. Each image of
the batch has its own factor. Arithmetic and rounding are those of torchvision's `adjust_saturation`,
`adjust_contrast` and `adjust_sharpness` on uint8 tensors.
"""

import torch
from torch import Tensor

from longtail.data.transforms.pixels import look_up


def adjust_color(images: Tensor, factors: Tensor) -> Tensor:
    """Away from the grey image (factor above 1) or towards it; a grey image is unchanged."""
    return images if images.shape[1] == 1 else _blend(images, _grey(images), factors)


def adjust_contrast(images: Tensor, factors: Tensor) -> Tensor:
    """Away from the flat image of mean grey, or towards it."""
    # The result depends on the pixel's value and the image's mean alone, so a table of 256 values is enough.
    mean = _grey(images).mean(dim=(1, 2, 3)).view(-1, 1, 1, 1)
    values = torch.arange(256).view(1, 1, 1, 256).expand(len(images), -1, -1, -1)
    return look_up(images, _blend(values, mean, factors).view(-1, 1, 256))


def adjust_sharpness(images: Tensor, factors: Tensor) -> Tensor:
    """Away from the image blurred by [[1, 1, 1], [1, 5, 1], [1, 1, 1]] / 13, or towards it.

    The border, where the kernel would reach outside, is unchanged.
    """
    if min(images.shape[2:]) <= 2:
        return images
    pixels = images.float()
    rows = pixels[:, :, :-2] + pixels[:, :, 1:-1] + pixels[:, :, 2:]
    inner = pixels[:, :, 1:-1, 1:-1]
    blurred = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * inner
    blurred.div_(13).round_()
    # torchvision blends here by image + (1 - factor) · (blurred - image).
    out = images.clone()
    out[:, :, 1:-1, 1:-1] = _add(inner, blurred.sub_(inner), 1 - factors)
    return out


def _grey(images: Tensor) -> Tensor:
    if images.shape[1] == 1:
        return images.float()
    red, green, blue = images.unbind(1)
    return red.mul(0.2989).add_(green, alpha=0.587).add_(blue, alpha=0.114).floor_().unsqueeze(1)


def _blend(images: Tensor, degenerate: Tensor, factors: Tensor) -> Tensor:
    return _add(images * factors.float().view(-1, 1, 1, 1), degenerate, 1 - factors)


def _add(images: Tensor, others: Tensor, scales: Tensor) -> Tensor:
    # Image by image, since `alpha` is a number: torch adds a multiple with one rounding (fused) where the
    # processor can. A second rounding could lose a bit, which truncation would turn into a whole step.
    for image, other, scale in zip(images, others, scales.tolist(), strict=True):
        image.add_(other, alpha=scale)
    return images.clamp_(0, 255).to(torch.uint8)
