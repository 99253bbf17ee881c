"""Logit adjustment: add the log priors to the logits in the loss, or subtract them after training.

    L(z, y) = -log( π_y^τ e^z_y / Σ_k π_k^τ e^z_k )        the loss
    z'_k    = z_k - τ log π_k                              post hoc

with logits z, label y, class priors π of the training set and strength τ. After training with the loss, predict from
the plain logits. The post hoc form is for a model that was trained with plain cross-entropy. Never use both: that
would correct twice.

Reference: Menon et al., "Long-tail learning via logit adjustment", ICLR 2021, eq. 9 (post hoc) and 10 (loss).
With τ = 1 the loss is `balanced_softmax`.
"""

import torch.nn.functional as F
from torch import Tensor

from longtail._typing import Reduction
from longtail.losses._checks import (
    ClassCountsLike,
    check_at_least_zero,
    check_inputs,
    check_logits,
    counts_for,
)
from longtail.losses.base import LOSSES, LongTailLoss


def logit_adjustment_loss(
    logits: Tensor,
    target: Tensor,
    *,
    class_counts: ClassCountsLike,
    strength: float = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Logit-adjusted cross-entropy; see the module's docstring for the equation.

    Args:
        logits: (B, K), any floating dtype; computed in float32 or better.
        target: (B,), class indices.
        class_counts: training images of each class, at least 1.
        strength: τ, zero or more; 0 is plain cross-entropy, 1 is Fisher consistent for the balanced error.
        reduction: "none", "mean" over the batch, or "sum".

    Example:
        >>> import torch
        >>> logit_adjustment_loss(torch.zeros(1, 2), torch.tensor([1]), class_counts=[3, 1])  # -log 1/4
        tensor(1.3863)
    """
    check_at_least_zero(strength=strength)
    logits = check_inputs(logits, target, reduction)
    return F.cross_entropy(logits + strength * log_priors(logits, class_counts), target, reduction=reduction)


def adjust_logits(logits: Tensor, *, class_counts: ClassCountsLike, strength: float = 1.0) -> Tensor:
    """Subtract the training priors from `logits` after training: the post hoc form.

    Args:
        logits: (B, K) of a model that was trained with plain cross-entropy.
        class_counts: training images of each class, at least 1.
        strength: τ, zero or more.

    Returns:
        (B, K), float32 or better; their argmax minimises the balanced error.

    Example:
        >>> import torch
        >>> adjust_logits(torch.zeros(1, 2), class_counts=[3, 1])  # -log 3/4, -log 1/4
        tensor([[0.2877, 1.3863]])
    """
    check_at_least_zero(strength=strength)
    logits = check_logits(logits)
    return logits - strength * log_priors(logits, class_counts)


def log_priors(logits: Tensor, class_counts: ClassCountsLike) -> Tensor:
    """The log of each class's share of the training images, (K,), on the device and of the dtype of `logits`."""
    counts = counts_for(logits, class_counts)
    return counts.log() - counts.sum().log()


@LOSSES.register("logit_adjustment")
class LogitAdjustmentLoss(LongTailLoss):
    """See :func:`logit_adjustment_loss`."""

    def __init__(self, class_counts: ClassCountsLike, *, strength: float = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__(class_counts, reduction=reduction)
        check_at_least_zero(strength=strength)
        self.strength = strength

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of `logits` (B, K) for the labels `target` (B,)."""
        return logit_adjustment_loss(
            logits,
            target,
            class_counts=self.class_counts,
            strength=self.strength,
            reduction=self.reduction,
        )
