"""Cross-entropy of the softmax: the baseline, which ignores class sizes.

    L(z, y) = -log( e^z_y / Σ_k e^z_k )

with logits z and label y. It estimates the training set's posterior, so rare classes are rarely predicted.
"""

import torch.nn.functional as F
from torch import Tensor

from longtail._typing import Reduction
from longtail.losses._checks import ClassCountsLike, check_inputs, counts_for
from longtail.losses.base import LOSSES, LongTailLoss


def cross_entropy_loss(
    logits: Tensor,
    target: Tensor,
    *,
    class_counts: ClassCountsLike | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-entropy; see the module's docstring for the equation.

    Args:
        logits: (B, K), any floating dtype; computed in float32 or better.
        target: (B,), class indices.
        class_counts: checked but not used; all losses have the same signature.
        reduction: "none", "mean" over the batch, or "sum".

    Example:
        >>> import torch
        >>> cross_entropy_loss(torch.zeros(1, 4), torch.tensor([2]))  # log 4
        tensor(1.3863)
    """
    logits = check_inputs(logits, target, reduction)
    if class_counts is not None:
        counts_for(logits, class_counts)
    return F.cross_entropy(logits, target, reduction=reduction)


@LOSSES.register("cross_entropy")
class CrossEntropyLoss(LongTailLoss):
    """See :func:`cross_entropy_loss`."""

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of `logits` (B, K) for the labels `target` (B,)."""
        return cross_entropy_loss(logits, target, class_counts=self.class_counts, reduction=self.reduction)
