"""τ-normalisation: a plain linear layer whose weights are then divided by a power of their norms.

    z_c = w_c · h / ‖w_c‖^τ

with the weights w_c of class c from cross-entropy. The norms grow with the number of images of a class; τ = 1 removes
them. There is no bias. Reference: Kang et al., ICLR 2020.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from longtail.heads.base import HEADS, Head
from longtail.heads.linear import LinearHead


@HEADS.register("tau_norm")
class TauNormHead(Head):
    """See the module's docstring.

    Args:
        class_counts: training images of each class.
        tau: τ; 0 leaves the weights as they are.
        weight_decay: of the linear layer.
    """

    knob = "tau"
    values = (1.0, 0.5, 1.5, 2.0)

    def __init__(self, class_counts: Sequence[int], *, tau: float = 1.0, weight_decay: float = 0.01) -> None:
        super().__init__(class_counts)
        self.tau, self.weight_decay = tau, weight_decay

    def blank(self, in_features: int) -> nn.Module:
        """A linear layer, its bias 0."""
        layer = nn.Linear(in_features, len(self.class_counts))
        nn.init.zeros_(layer.bias)
        return layer

    @torch.no_grad()
    def fit(self, features: Tensor, target: Tensor) -> nn.Module:
        """Train by cross-entropy, then divide."""
        plain = LinearHead(list(self.class_counts), strength=0.0, label_smoothing=0.0, weight_decay=self.weight_decay)
        layer = plain.fit(features, target)
        weight, bias = layer.get_parameter("weight"), layer.get_parameter("bias")
        weight.div_(weight.norm(dim=1, keepdim=True).clamp_min(1e-12) ** self.tau)
        bias.zero_()
        return layer
