"""DisAlign: a plain linear layer, corrected by a scale and an offset for each class, as far as a gate of the features.

    z'_c = (1 + g a_c) z_c + g b_c,    g = sigmoid(v · h + u)

with z from cross-entropy, fixed, and a, b, v, u from cross-entropy weighted by π_c^{−ρ}. Reference: Zhang et al.,
"Distribution Alignment: A Unified Framework for Long-tail Visual Recognition", CVPR 2021; the ρ of its code is 1.2 to
1.5. Here a starts at 0, so that the first correction is none.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.heads._solve import minimise
from longtail.heads.base import HEADS, Head
from longtail.heads.linear import LinearHead
from longtail.nn.aligned_classifier import AlignedClassifier


@HEADS.register("disalign")
class DisAlignHead(Head):
    """See the module's docstring.

    Args:
        class_counts: training images of each class.
        power: ρ.
        weight_decay: of the linear layer.
        correction_decay: of the correction; holds it near none.
        iterations: of L-BFGS for the correction.
    """

    knob = "power"
    values = (1.2, 1.0, 1.5)

    def __init__(
        self,
        class_counts: Sequence[int],
        *,
        power: float = 1.2,
        weight_decay: float = 0.01,
        correction_decay: float = 1e-3,
        iterations: int = 40,
    ) -> None:
        super().__init__(class_counts)
        self.power, self.weight_decay = power, weight_decay
        self.correction_decay, self.iterations = correction_decay, iterations

    def blank(self, in_features: int) -> nn.Module:
        """A linear layer with its correction."""
        return AlignedClassifier(nn.Linear(in_features, len(self.class_counts)))

    def fit(self, features: Tensor, target: Tensor) -> nn.Module:
        """Train by cross-entropy, then learn the correction."""
        plain = LinearHead(list(self.class_counts), strength=0.0, label_smoothing=0.0, weight_decay=self.weight_decay)
        linear = plain.fit(features, target)
        assert isinstance(linear, nn.Linear)
        layer = AlignedClassifier(linear)
        learnt = [parameter for parameter in layer.parameters() if parameter.requires_grad]
        weight = torch.tensor(self.class_counts.priors) ** -self.power
        weight *= len(weight) / weight.sum()

        def objective() -> Tensor:
            decay = sum((parameter.square().sum() for parameter in learnt), start=features.new_zeros(()))
            return F.cross_entropy(layer(features), target, weight=weight) + 0.5 * self.correction_decay * decay

        minimise(objective, learnt, iterations=self.iterations)
        return layer.requires_grad_(False).eval()
