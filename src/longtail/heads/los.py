"""Label over-smoothing (LOS): a linear layer trained by cross-entropy with nearly uniform labels.

    L(z, y) = −Σ_k q_k log softmax(z)_k,    q = (1 − ε) onehot(y) + ε / K,    ε near 1

With ε near 1 the logits stay small and their means nearly equal over the classes, which balances the classifier without
knowing the class sizes. Reference: Sun et al., "Rethinking Classifier Re-Training in Long-Tailed Recognition: Label
Over-Smooth Can Balance", ICLR 2025. The paper's ε is 0.98 or 0.99.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from longtail.heads.base import HEADS, Head
from longtail.heads.linear import LinearHead


@HEADS.register("los")
class LOSHead(Head):
    """See the module's docstring.

    Args:
        class_counts: training images of each class.
        label_smoothing: ε.
        weight_decay: of the mean loss.
    """

    knob = "label_smoothing"
    values = (0.98, 0.9, 0.99)

    def __init__(
        self, class_counts: Sequence[int], *, label_smoothing: float = 0.98, weight_decay: float = 1e-4
    ) -> None:
        super().__init__(class_counts)
        self.label_smoothing, self.weight_decay = label_smoothing, weight_decay
        self._linear = LinearHead(
            class_counts, strength=0.0, label_smoothing=label_smoothing, weight_decay=weight_decay
        )

    def blank(self, in_features: int) -> nn.Module:
        """A linear layer."""
        return self._linear.blank(in_features)

    def fit(self, features: Tensor, target: Tensor) -> nn.Module:
        """Solve the convex problem from zero."""
        return self._linear.fit(features, target)
