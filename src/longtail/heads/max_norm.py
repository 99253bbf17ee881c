"""Weight balancing: a linear layer with weight decay, whose rows are kept within a ball (MaxNorm).

    min over W, b:  class-balanced CE + λ/2 ‖W‖²    subject to ‖w_c‖ ≤ δ for every class c

Frequent classes have the longest weights; the ball takes their head start. Solved by rounds of L-BFGS, each followed by
the projection w_c ← w_c min(1, δ / ‖w_c‖). Reference: Alshammari et al., "Long-Tailed Recognition via Weight
Balancing", CVPR 2022, section 4; its δ is found on validation images.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.heads._solve import fit_layer, zero_linear
from longtail.heads.base import HEADS, Head
from longtail.losses import class_weights

_ROUNDS = 5


@HEADS.register("max_norm")
class MaxNormHead(Head):
    """See the module's docstring.

    Args:
        class_counts: training images of each class.
        radius: δ.
        weight_decay: λ.
        iterations: of L-BFGS in each round.
    """

    knob = "radius"
    values = (0.5, 0.25, 1.0)

    def __init__(
        self, class_counts: Sequence[int], *, radius: float = 0.5, weight_decay: float = 0.01, iterations: int = 12
    ) -> None:
        super().__init__(class_counts)
        if radius <= 0:
            raise ValueError(f"radius must be more than 0, got {radius}")
        self.radius, self.weight_decay, self.iterations = radius, weight_decay, iterations

    def blank(self, in_features: int) -> nn.Module:
        """A linear layer."""
        return nn.Linear(in_features, len(self.class_counts))

    def fit(self, features: Tensor, target: Tensor) -> nn.Module:
        """Solve and project in turns."""
        layer: nn.Module = zero_linear(features.shape[1], len(self.class_counts))
        balance = class_weights(list(self.class_counts), weighting="effective_number")
        for _ in range(_ROUNDS):
            fit_layer(
                layer.requires_grad_(True),
                features,
                lambda logits: F.cross_entropy(logits, target, weight=balance),
                weight_decay=self.weight_decay,
                iterations=self.iterations,
            )
            with torch.no_grad():
                weight = layer.get_parameter("weight")
                weight.mul_((self.radius / weight.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp_max(1.0))
        return layer
