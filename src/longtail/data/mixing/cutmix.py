"""CutMix: a box in each image is filled from another image, and the losses are weighted by area.

    box of sides H √(1 − λ) and W √(1 − λ) with a uniform centre, clipped to the image;  λ ~ Beta(α, α)
    w = 1 − (area of the clipped box) / (H W), one for the batch

Yun et al., "CutMix: Regularization strategy to train strong classifiers with localizable features", ICCV
2019, eq. 1 and 2. As in the authors' code, the weight is that of the box after clipping.
"""

import torch
from torch import Tensor

from longtail.data.mixing.base import MIXINGS, Mixed, draw_partners, draw_share


@MIXINGS.register("cutmix")
def cutmix(images: Tensor, target: Tensor, *, alpha: float = 1.0, generator: torch.Generator) -> Mixed:
    """Fill a box in each image from its partner; see the module's docstring for the equations.

    Args:
        images: float, shape (n, channels, height, width); not changed.
        target: int64 labels.
        alpha: α, 1 in the paper.
        generator: torch's, on the CPU.
    """
    partners = draw_partners(target, generator)
    share = draw_share(alpha, generator)
    return cut_and_paste(images, target, images[partners], target[partners], share=share, generator=generator)


def cut_and_paste(
    images: Tensor,
    target: Tensor,
    patches: Tensor,
    patch_target: Tensor,
    *,
    share: float,
    generator: torch.Generator,
) -> Mixed:
    """Fill one box, at the same place in all images, from `patches`, image by image; `share` is λ."""
    side = (1 - share) ** 0.5
    height, width = images.shape[-2:]
    centre = torch.rand(2, generator=generator).tolist()
    (top, bottom), (left, right) = (
        _span(place, side, size) for place, size in zip(centre, (height, width), strict=True)
    )
    mixed = images.clone()
    mixed[:, :, top:bottom, left:right] = patches[:, :, top:bottom, left:right]
    weight = 1 - (bottom - top) * (right - left) / (height * width)
    return Mixed(mixed, target, patch_target, images.new_full((len(target),), weight, dtype=torch.float32))


def _span(place: float, side: float, size: int) -> tuple[int, int]:
    centre, half = int(place * size), int(side * size) // 2
    return max(centre - half, 0), min(centre + half, size)
