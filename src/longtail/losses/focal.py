"""Focal loss, softmax form: images that are already well classified count less.

    L(z, y) = -w_y (1 - p_y)^γ log p_y,    p = softmax(z)

with logits z, label y, focus γ and class weights w (the paper's α; 1 by default). The factor (1 - p_y)^γ uses the
probability itself: some published code computes it from the weighted loss, as 1 - p_y^w_y, which is another
function. "mean" divides by the batch size, with weights or without.

Reference: Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017, eq. 4-5. There each class has its own
sigmoid; for two classes, logits (0, x) here correspond to its logit x.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from longtail._typing import Reduction
from longtail.losses._checks import ClassCountsLike, check_at_least_zero, check_inputs, counts_for
from longtail.losses._reduction import reduce_losses
from longtail.losses.base import LOSSES, LongTailLoss
from longtail.losses.class_weights import Weighting, check_weighting, class_weights


def focal_loss(
    logits: Tensor,
    target: Tensor,
    *,
    class_counts: ClassCountsLike | None = None,
    gamma: float = 2.0,
    weighting: Weighting = "none",
    beta: float = 0.9999,
    reduction: Reduction = "mean",
) -> Tensor:
    """Focal loss; see the module's docstring for the equation.

    Args:
        logits: (B, K), any floating dtype; computed in float32 or better.
        target: (B,), class indices.
        class_counts: training images of each class, at least 1; needed only for the weights.
        gamma: γ, zero or more; 0 is plain cross-entropy.
        weighting: "none", "effective_number" (uses `beta`) or "inverse_frequency".
        beta: β of the effective number, 0 <= β < 1.
        reduction: "none", "mean" over the batch, or "sum".

    Example:
        >>> import torch
        >>> focal_loss(torch.zeros(1, 2), torch.tensor([1]))  # (1 - 1/2)² log 2
        tensor(0.1733)
    """
    check_at_least_zero(gamma=gamma)
    check_weighting(weighting, beta)
    if class_counts is None and weighting != "none":
        raise ValueError(f"class_counts must be given for weighting={weighting!r}, got None")
    logits = check_inputs(logits, target, reduction)
    negative_log_p = F.cross_entropy(logits, target, reduction="none")
    # 1 - p without cancellation. Where p rounds to 1 and γ < 1, the power has an infinite slope, and 0 * inf would
    # put NaN into the gradient; the slope of the clamp is 0 there, which is the limit.
    missing = (-torch.expm1(-negative_log_p)).clamp_min(torch.finfo(logits.dtype).tiny)
    losses = missing**gamma * negative_log_p
    if class_counts is not None:
        weights = class_weights(counts_for(logits, class_counts), weighting=weighting, beta=beta)
        losses = weights[target] * losses
    return reduce_losses(losses, reduction)


@LOSSES.register("focal")
class FocalLoss(LongTailLoss):
    """See :func:`focal_loss`."""

    def __init__(
        self,
        class_counts: ClassCountsLike,
        *,
        gamma: float = 2.0,
        weighting: Weighting = "none",
        beta: float = 0.9999,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(class_counts, reduction=reduction)
        check_at_least_zero(gamma=gamma)
        check_weighting(weighting, beta)
        self.gamma = gamma
        self.weighting: Weighting = weighting
        self.beta = beta

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of `logits` (B, K) for the labels `target` (B,)."""
        return focal_loss(
            logits,
            target,
            class_counts=self.class_counts,
            gamma=self.gamma,
            weighting=self.weighting,
            beta=self.beta,
            reduction=self.reduction,
        )
