"""Logit adjustment: add the log priors to the logits in the loss, or subtract them after training.

    L(z, y) = -Σ_k q_k log( π_k^τ e^z_k / Σ_j π_j^τ e^z_j )    the loss
    z'_k    = z_k - τ log π_k                                  post hoc
    q       = (1 - ε) onehot(y) + ε s,    s_k ∝ π_k^(3τ/4)

with logits z, label y, class priors π of the training set, strength τ and label smoothing ε, which the paper does not
have. After training with the loss, predict from the plain logits. The post hoc form is for a model that was trained
with plain cross-entropy. Never use both: that would correct twice.

Reference: Menon et al., "Long-tail learning via logit adjustment", ICLR 2021, eq. 9 (post hoc) and 10 (loss).
With τ = 1 and ε = 0 the loss is `balanced_softmax`.

Labels are smoothed towards s and not, as usual, towards equal shares. An image of class y that is fitted as well as can
be has the logits log q - τ log π. With equal shares ε / K these are largest for a class k that is rare enough, where
π_y / π_k > K (1 - ε) / ε: with two classes and ε = 0.1, a class 18 times as rare as the other would take all images.
Shares that fall with the priors hold it back.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from longtail._typing import Reduction
from longtail.losses._checks import (
    ClassCountsLike,
    check_at_least_zero,
    check_inputs,
    check_logits,
    check_share,
    counts_for,
)
from longtail.losses.base import LOSSES, LongTailLoss

# How far the shares of smoothed labels follow the priors: 0 is not at all, 1 is all the way.
_SHARES_FOLLOW = 0.75


def logit_adjustment_loss(
    logits: Tensor,
    target: Tensor,
    *,
    class_counts: ClassCountsLike,
    strength: float = 1.0,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Logit-adjusted cross-entropy; see the module's docstring for the equation.

    Args:
        logits: (B, K), any floating dtype; computed in float32 or better.
        target: (B,), class indices.
        class_counts: training images of each class, at least 1.
        strength: τ, zero or more; 0 is plain cross-entropy, 1 is Fisher consistent for the balanced error.
        label_smoothing: ε, at least 0 and less than 1.
        reduction: "none", "mean" over the batch, or "sum".

    Example:
        >>> import torch
        >>> logit_adjustment_loss(torch.zeros(1, 2), torch.tensor([1]), class_counts=[3, 1])  # -log 1/4
        tensor(1.3863)
    """
    check_at_least_zero(strength=strength)
    check_share(label_smoothing=label_smoothing)
    logits = check_inputs(logits, target, reduction)
    shift = strength * log_priors(logits, class_counts)
    loss = F.cross_entropy(logits + shift, target, reduction=reduction)
    if not label_smoothing:
        return loss
    shares = (_SHARES_FOLLOW * shift).softmax(0)
    others = -((logits + shift).log_softmax(1) * shares).sum(1)  # no matrix product: autocast would round it
    return torch.lerp(loss, {"none": others, "mean": others.mean(), "sum": others.sum()}[reduction], label_smoothing)


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

    def __init__(
        self,
        class_counts: ClassCountsLike,
        *,
        strength: float = 1.0,
        label_smoothing: float = 0.0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(class_counts, reduction=reduction)
        check_at_least_zero(strength=strength)
        check_share(label_smoothing=label_smoothing)
        self.strength, self.label_smoothing = strength, label_smoothing

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of `logits` (B, K) for the labels `target` (B,)."""
        return logit_adjustment_loss(
            logits,
            target,
            class_counts=self.class_counts,
            strength=self.strength,
            label_smoothing=self.label_smoothing,
            reduction=self.reduction,
        )
