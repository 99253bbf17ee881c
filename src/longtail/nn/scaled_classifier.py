"""A linear classifier whose logits are multiplied by a learnt scale of each class.

    z_c = f_c (w_c · h + b_c)

with features h and the scale f_c of class c, 1 at the start: it begins as the linear layer. Used by learnable weight
scaling (Kang et al., "Decoupling Representation and Classifier for Long-Tailed Recognition", ICLR 2020, section 4.4).
"""

import torch
from torch import Tensor, nn


class ScaledClassifier(nn.Module):
    """See the module's docstring.

    Args:
        linear: from features (B, D) to logits (B, K); taken over.

    Example:
        >>> layer = ScaledClassifier(nn.Linear(8, 3))
        >>> layer(torch.zeros(2, 8)).shape
        torch.Size([2, 3])
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear
        like = linear.weight
        self.scale = nn.Parameter(torch.ones(linear.out_features, device=like.device, dtype=like.dtype))

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, D) to logits (B, K)."""
        logits: Tensor = self.scale * self.linear(features)
        return logits
