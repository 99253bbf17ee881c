"""Balanced softmax: cross-entropy whose softmax is weighted by the class sizes.

    L(z, y) = -log( n_y e^z_y / Σ_k n_k e^z_k )

with logits z, label y and n_k training images in class k. Trained with it, softmax(z) estimates the posterior under
equal class priors: predict from the plain logits. A strong default without hyper-parameters.

Reference: Ren et al., "Balanced Meta-Softmax for Long-Tailed Visual Recognition", NeurIPS 2020, section 3.1.
It equals `logit_adjustment` with strength 1.
"""

import torch.nn.functional as F
from torch import Tensor

from longtail._typing import Reduction
from longtail.losses._checks import ClassCountsLike, check_inputs, counts_for
from longtail.losses.base import LOSSES, LongTailLoss


def balanced_softmax_loss(
    logits: Tensor, target: Tensor, *, class_counts: ClassCountsLike, reduction: Reduction = "mean"
) -> Tensor:
    """Balanced softmax; see the module's docstring for the equation.

    Args:
        logits: (B, K), any floating dtype; computed in float32 or better.
        target: (B,), class indices.
        class_counts: training images of each class, at least 1.
        reduction: "none", "mean" over the batch, or "sum".

    Example:
        >>> import torch
        >>> balanced_softmax_loss(torch.zeros(1, 2), torch.tensor([1]), class_counts=[3, 1])  # -log 1/4
        tensor(1.3863)
    """
    logits = check_inputs(logits, target, reduction)
    return F.cross_entropy(logits + counts_for(logits, class_counts).log(), target, reduction=reduction)


@LOSSES.register("balanced_softmax")
class BalancedSoftmaxLoss(LongTailLoss):
    """See :func:`balanced_softmax_loss`."""

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of `logits` (B, K) for the labels `target` (B,)."""
        return balanced_softmax_loss(logits, target, class_counts=self.class_counts, reduction=self.reduction)
