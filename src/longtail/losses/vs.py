"""Vector scaling (VS): the logits of each class are scaled and shifted before the softmax.

    L(z, y) = -log( e^(Δ_y z_y + ι_y) / Σ_k e^(Δ_k z_k + ι_k) )
    Δ_k     = (n_k / n_max)^γ
    ι_k     = τ log π_k

with logits z, label y, n_k training images in class k, n_max in the largest, and priors π. Once the training data
are separated, shifts lose their effect while scales keep it. γ = 0 is `logit_adjustment`. Predict from the plain
logits.

Reference: Kini et al., "Label-Imbalanced and Group-Sensitive Classification under Overparameterization",
NeurIPS 2021: the VS-loss with all its weights ω at 1, and Δ and ι as in its experiments on CIFAR-LT.
"""

import torch.nn.functional as F
from torch import Tensor

from longtail._typing import Reduction
from longtail.losses._checks import ClassCountsLike, check_at_least_zero, check_inputs, counts_for
from longtail.losses.base import LOSSES, LongTailLoss
from longtail.losses.logit_adjustment import log_priors


def vs_loss(
    logits: Tensor,
    target: Tensor,
    *,
    class_counts: ClassCountsLike,
    stretch: float = 0.15,
    shift: float = 1.25,
    reduction: Reduction = "mean",
) -> Tensor:
    """Vector-scaling loss; see the module's docstring for the equation.

    Args:
        logits: (B, K), any floating dtype; computed in float32 or better.
        target: (B,), class indices.
        class_counts: training images of each class, at least 1.
        stretch: γ, zero or more. The defaults are the paper's for CIFAR-10-LT; for CIFAR-100-LT it has
            γ = 0.05 and τ = 0.75.
        shift: τ, zero or more.
        reduction: "none", "mean" over the batch, or "sum".

    Example:
        >>> import torch
        >>> vs_loss(torch.zeros(1, 2), torch.tensor([1]), class_counts=[3, 1], shift=1.0)  # -log 1/4
        tensor(1.3863)
    """
    check_at_least_zero(stretch=stretch, shift=shift)
    logits = check_inputs(logits, target, reduction)
    counts = counts_for(logits, class_counts)
    stretched = logits * (counts / counts.max()) ** stretch
    return F.cross_entropy(stretched + shift * log_priors(logits, counts), target, reduction=reduction)


@LOSSES.register("vs")
class VSLoss(LongTailLoss):
    """See :func:`vs_loss`."""

    def __init__(
        self,
        class_counts: ClassCountsLike,
        *,
        stretch: float = 0.15,
        shift: float = 1.25,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(class_counts, reduction=reduction)
        check_at_least_zero(stretch=stretch, shift=shift)
        self.stretch = stretch
        self.shift = shift

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of `logits` (B, K) for the labels `target` (B,)."""
        return vs_loss(
            logits,
            target,
            class_counts=self.class_counts,
            stretch=self.stretch,
            shift=self.shift,
            reduction=self.reduction,
        )
