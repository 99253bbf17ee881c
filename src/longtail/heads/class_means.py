"""Nearest class mean in cosine: nothing is trained, and one image of a class is enough.

    z_c = s cos(h, m_c),    m_c = mean over the images of class c of h / ‖h‖

Reference: Mensink et al., "Distance-based image classification", TPAMI 2013; in cosine as in Gidaris and Komodakis,
CVPR 2018.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.heads.base import HEADS, Head
from longtail.nn.cosine_classifier import CosineClassifier


@HEADS.register("class_means")
class ClassMeansHead(Head):
    """See the module's docstring.

    Args:
        class_counts: training images of each class.
        scale: s; it changes the confidences, not the labels.
    """

    def __init__(self, class_counts: Sequence[int], *, scale: float = 25.0) -> None:
        super().__init__(class_counts)
        self.scale = scale

    def blank(self, in_features: int) -> nn.Module:
        """A cosine classifier."""
        return CosineClassifier(in_features, len(self.class_counts), scale=self.scale)

    @torch.no_grad()
    def fit(self, features: Tensor, target: Tensor) -> nn.Module:
        """Take the means."""
        layer = self.blank(features.shape[1])
        layer.get_parameter("weight").copy_(class_means(features, target, len(self.class_counts)))
        return layer.requires_grad_(False).eval()


def class_means(features: Tensor, target: Tensor, num_classes: int) -> Tensor:
    """The mean direction of each class, (K, D), of length 1."""
    sums = features.new_zeros(num_classes, features.shape[1]).index_add_(0, target, F.normalize(features))
    return F.normalize(sums)
