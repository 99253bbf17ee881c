"""CMO: CutMix whose boxes come from rare classes, so that these appear in the many contexts of frequent ones.

    as in `cutmix`, but what fills the box of image i is image i of a second batch, which a sampler that favours rare
    classes has drawn; w = 1 − (area of the clipped box) / (H W)

The background, with the weight w, comes from the images as they are. Patches come from classes drawn alike (the
sampler `class_balanced`), as in the authors' code: it weighs each image by 1 / n_k, of which class k has n_k. Taken for
classes, as the paper's text may be, p_k ∝ 1 / n_k (the sampler `reverse`) shows few but the rarest. The authors' code
mixes half of the steps, and none of the first four and the last three epochs.

Park et al., "The majority can help the minority: Context-rich minority oversampling for long-tailed
classification", CVPR 2022.
"""

import torch
from torch import Tensor

from longtail.data.mixing.base import MIXINGS, Mixed, draw_share
from longtail.data.mixing.cutmix import cut_and_paste


@MIXINGS.register("cmo")
def cmo(
    images: Tensor,
    target: Tensor,
    *,
    patches: Tensor,
    patch_target: Tensor,
    alpha: float = 1.0,
    generator: torch.Generator,
) -> Mixed:
    """Fill a box in each image from the image of its place in another batch; see the module's docstring.

    Args:
        images: float, shape (n, channels, height, width); not changed.
        target: int64 labels.
        patches: the images that the boxes are filled from, of the same shape.
        patch_target: their labels.
        alpha: α of the Beta distribution, 1 in the paper.
        generator: torch's, on the CPU.
    """
    if patches.shape != images.shape:
        raise ValueError(
            f"patches must have the shape of the images, {tuple(images.shape)}, got {tuple(patches.shape)} "
            "(draw two batches of one size)"
        )
    share = draw_share(alpha, generator)
    return cut_and_paste(images, target, patches, patch_target, share=share, generator=generator)
