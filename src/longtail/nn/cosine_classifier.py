"""A classifier of directions: the logit of a class is the cosine between the features and the class's weights.

    z_k = s cos(h, w_k) = s h·w_k / (‖h‖ ‖w_k‖)

with features h, the weights w_k of class k and a scale s. The norms of w_k, which grow with the number of images of a
class, play no part, so frequent classes have no head start. There is no bias.

References: Gidaris and Komodakis, "Dynamic Few-Shot Visual Learning without Forgetting", CVPR 2018; Cao et al., NeurIPS
2019 (LDAM), which takes s = 30.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def cosine_logits(features: Tensor, weight: Tensor, *, scale: float = 30.0) -> Tensor:
    """Scaled cosines; see the module's docstring for the equation.

    Args:
        features: (B, D).
        weight: (K, D), a row for each class.
        scale: s.

    Returns:
        (B, K), from -s to s.

    Example:
        >>> cosine_logits(torch.tensor([[3.0, 4.0]]), torch.eye(2), scale=10)
        tensor([[6., 8.]])
    """
    return scale * F.linear(F.normalize(features), F.normalize(weight))


class CosineClassifier(nn.Module):
    """See :func:`cosine_logits`.

    Args:
        in_features: D.
        num_classes: K.
        scale: s.
        device: of the weights.
        dtype: of the weights.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        scale: float = 30.0,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not 0 < scale < math.inf:
            raise ValueError(f"scale must be positive and finite, got {scale}")
        self.in_features, self.num_classes, self.scale = in_features, num_classes, scale
        self.weight = nn.Parameter(torch.empty(num_classes, in_features, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Random directions of length 1."""
        self.weight.copy_(F.normalize(torch.randn_like(self.weight)))

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, D) to logits (B, K)."""
        return cosine_logits(features, self.weight, scale=self.scale)

    def extra_repr(self) -> str:
        """The sizes and the scale."""
        return f"{self.in_features}, {self.num_classes}, scale={self.scale}"
