"""A linear classifier with a correction of each class, as far as a gate of the features lets it through.

    z'_c = (1 + g a_c) z_c + g b_c,    g = sigmoid(v · h + u)

with features h, the logits z of a linear layer, scales a and offsets b of the classes and the gate's v and u. All four
start at 0, so that the first correction is none.

Reference: Zhang et al., "Distribution Alignment: A Unified Framework for Long-tail Visual Recognition", CVPR 2021;
in its code a starts at 1.
"""

import torch
from torch import Tensor, nn


class AlignedClassifier(nn.Module):
    """The corrected layer; see the module's docstring.

    Args:
        linear: from features (B, D) to z (B, K); taken over.

    Example:
        >>> layer = AlignedClassifier(nn.Linear(8, 3))
        >>> layer(torch.zeros(2, 8)).shape
        torch.Size([2, 3])
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear
        like = linear.weight
        self.gate = nn.Linear(linear.in_features, 1, device=like.device, dtype=like.dtype)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)
        self.scale = nn.Parameter(torch.zeros(linear.out_features, device=like.device, dtype=like.dtype))
        self.offset = nn.Parameter(torch.zeros_like(self.scale))

    def correct(self, logits: Tensor, features: Tensor) -> Tensor:
        """Z' (B, K), from z and h."""
        gate = self.gate(features).sigmoid()
        corrected: Tensor = (1 + gate * self.scale) * logits + gate * self.offset
        return corrected

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, D) to logits (B, K)."""
        return self.correct(self.linear(features), features)
