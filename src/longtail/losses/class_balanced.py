"""Class-balanced cross-entropy: the loss of each label is multiplied by the weight of its class.

    L(z, y) = -w_y log( e^z_y / Σ_k e^z_k )

with logits z, label y and the weights w of `class_weights`. Strong weights from the first epoch often hurt the
features; deferring them (`ldam`), or retraining only the classifier with them, works better.

Reference: Cui et al., "Class-Balanced Loss Based on Effective Number of Samples", CVPR 2019, section 4.
"mean" divides by the weights of the batch's labels, as torch does; the paper divides by the batch size.
"""

import torch.nn.functional as F
from torch import Tensor

from longtail._typing import Reduction
from longtail.losses._checks import ClassCountsLike, check_inputs, counts_for
from longtail.losses.base import LOSSES, LongTailLoss
from longtail.losses.class_weights import Weighting, check_weighting, class_weights


def class_balanced_loss(
    logits: Tensor,
    target: Tensor,
    *,
    class_counts: ClassCountsLike,
    weighting: Weighting = "effective_number",
    beta: float = 0.9999,
    reduction: Reduction = "mean",
) -> Tensor:
    """Class-weighted cross-entropy; see the module's docstring for the equation.

    Args:
        logits: (B, K), any floating dtype; computed in float32 or better.
        target: (B,), class indices.
        class_counts: training images of each class, at least 1.
        weighting: "effective_number" (uses `beta`), "inverse_frequency", or "none".
        beta: β of the effective number, 0 <= β < 1; 0 is plain cross-entropy.
        reduction: "none", "mean" weighted by the weights of the labels, or "sum".

    Example:
        >>> import torch
        >>> logits, target = torch.tensor([[0.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1])
        >>> class_balanced_loss(logits, target, class_counts=[9, 1], weighting="inverse_frequency")
        tensor(0.1835)
    """
    logits = check_inputs(logits, target, reduction)
    weight = class_weights(counts_for(logits, class_counts), weighting=weighting, beta=beta)
    return F.cross_entropy(logits, target, weight=weight, reduction=reduction)


@LOSSES.register("class_balanced")
class ClassBalancedLoss(LongTailLoss):
    """See :func:`class_balanced_loss`."""

    def __init__(
        self,
        class_counts: ClassCountsLike,
        *,
        weighting: Weighting = "effective_number",
        beta: float = 0.9999,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(class_counts, reduction=reduction)
        check_weighting(weighting, beta)
        self.weighting: Weighting = weighting
        self.beta = beta

    def label_weights(self) -> Tensor:
        """Those of `class_weights`."""
        return class_weights(self.class_counts, weighting=self.weighting, beta=self.beta)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of `logits` (B, K) for the labels `target` (B,)."""
        return class_balanced_loss(
            logits,
            target,
            class_counts=self.class_counts,
            weighting=self.weighting,
            beta=self.beta,
            reduction=self.reduction,
        )
