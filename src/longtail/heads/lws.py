"""Learnable weight scaling (LWS): a plain linear layer, then one scale for each class, learnt class-balanced.

    z_c = s_c (w_c · h + b_c),    s_c = exp(a_c)

with w and b from cross-entropy, fixed, and a from cross-entropy weighted by 1 / n_c, starting at 0. The scales are
folded into the layer. Reference: Kang et al., ICLR 2020, section 4.4.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.heads._solve import minimise
from longtail.heads.base import HEADS, Head
from longtail.heads.linear import LinearHead
from longtail.losses import class_weights


@HEADS.register("lws")
class LWSHead(Head):
    """See the module's docstring.

    Args:
        class_counts: training images of each class.
        weight_decay: of the linear layer.
        scale_decay: of a; holds the scales near 1.
        iterations: of L-BFGS for the scales.
    """

    knob = "weight_decay"
    values = (0.01, 0.03, 0.1)

    def __init__(
        self,
        class_counts: Sequence[int],
        *,
        weight_decay: float = 0.01,
        scale_decay: float = 1e-3,
        iterations: int = 40,
    ) -> None:
        super().__init__(class_counts)
        self.weight_decay, self.scale_decay, self.iterations = weight_decay, scale_decay, iterations

    def blank(self, in_features: int) -> nn.Module:
        """A linear layer."""
        return nn.Linear(in_features, len(self.class_counts))

    def fit(self, features: Tensor, target: Tensor) -> nn.Module:
        """Train by cross-entropy, then scale."""
        plain = LinearHead(list(self.class_counts), strength=0.0, label_smoothing=0.0, weight_decay=self.weight_decay)
        layer = plain.fit(features, target)
        weight = class_weights(list(self.class_counts), weighting="inverse_frequency")
        logits = layer(features)
        scale = torch.zeros(len(self.class_counts), requires_grad=True)

        def objective() -> Tensor:
            loss = F.cross_entropy(scale.exp() * logits, target, weight=weight)
            return loss + 0.5 * self.scale_decay * scale.square().sum()

        minimise(objective, [scale], iterations=self.iterations)
        with torch.no_grad():
            layer.get_parameter("weight").mul_(scale.exp()[:, None])
            layer.get_parameter("bias").mul_(scale.exp())
        return layer
