"""Classifier re-training (cRT): a linear layer trained as if every class had as many images.

    min over W, b:  Σ_i w_{y_i} CE(W h_i + b, y_i) / Σ_i w_{y_i} + λ/2 ‖W‖²,    w_c = 1 / n_c

with n_c images of class c. Weights stand for the class-balanced sampling of the paper: the same expectation, without
its noise. Reference: Kang et al., ICLR 2020, section 4.2.
"""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from longtail.heads._solve import fit_layer, zero_linear
from longtail.heads.base import HEADS, Head
from longtail.losses import class_weights


@HEADS.register("crt")
class CRTHead(Head):
    """See the module's docstring.

    Args:
        class_counts: training images of each class.
        weight_decay: λ.
        iterations: of L-BFGS.
    """

    knob = "weight_decay"
    values = (0.01, 0.03, 0.1, 0.003)

    def __init__(self, class_counts: Sequence[int], *, weight_decay: float = 0.01, iterations: int = 40) -> None:
        super().__init__(class_counts)
        self.weight_decay, self.iterations = weight_decay, iterations

    def blank(self, in_features: int) -> nn.Module:
        """A linear layer."""
        return nn.Linear(in_features, len(self.class_counts))

    def fit(self, features: Tensor, target: Tensor) -> nn.Module:
        """Solve the convex problem from zero."""
        weight = class_weights(list(self.class_counts), weighting="inverse_frequency")
        return fit_layer(
            zero_linear(features.shape[1], len(self.class_counts)),
            features,
            lambda logits: F.cross_entropy(logits, target, weight=weight),
            weight_decay=self.weight_decay,
            iterations=self.iterations,
        )
