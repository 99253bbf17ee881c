"""A cosine classifier that starts from the class means and is trained by logit adjustment.

    z_c = s cos(h, w_c),    L = logit_adjustment_loss(z, y), of strength τ and label smoothing ε

The norms of features and weights play no part. Reference: Shi et al., "Long-Tail Learning with Foundation Model: Heavy
Fine-tuning Hurts" (LIFT), ICML 2024, which takes s = 25 and starts from class means of text or images.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from longtail.heads._solve import fit_layer
from longtail.heads.base import HEADS, Head
from longtail.heads.class_means import class_means
from longtail.losses import logit_adjustment_loss
from longtail.nn.cosine_classifier import CosineClassifier


@HEADS.register("cosine")
class CosineHead(Head):
    """See the module's docstring.

    Args:
        class_counts: training images of each class.
        scale: s.
        strength: τ.
        label_smoothing: of the loss.
        iterations: of L-BFGS; few keep the weights near the class means.
    """

    knob = "iterations"
    values = (20, 10, 40)

    def __init__(
        self,
        class_counts: Sequence[int],
        *,
        scale: float = 25.0,
        strength: float = 1.0,
        label_smoothing: float = 0.1,
        iterations: int = 20,
    ) -> None:
        super().__init__(class_counts)
        self.scale, self.strength, self.label_smoothing, self.iterations = scale, strength, label_smoothing, iterations

    def blank(self, in_features: int) -> nn.Module:
        """A cosine classifier."""
        return CosineClassifier(in_features, len(self.class_counts), scale=self.scale)

    def fit(self, features: Tensor, target: Tensor) -> nn.Module:
        """Train from the class means."""
        layer = self.blank(features.shape[1])
        with torch.no_grad():
            layer.get_parameter("weight").copy_(class_means(features, target, len(self.class_counts)))
        return fit_layer(
            layer,
            features,
            lambda logits: logit_adjustment_loss(
                logits,
                target,
                class_counts=self.class_counts,
                strength=self.strength,
                label_smoothing=self.label_smoothing,
            ),
            weight_decay=0.0,
            iterations=self.iterations,
        )
