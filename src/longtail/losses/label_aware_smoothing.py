"""Label-aware smoothing: labels of frequent classes are smoothed more, against overconfidence.

    L(z, y) = -(1 - ε_y) log p_y - ε_y / (K - 1) Σ_{k≠y} log p_k,    p = softmax(z)
    ε_y     = tail + (head - tail) f(t),    t = (n_y - n_min) / (n_max - n_min)
    f(t)    = sin(t π / 2) (concave),  t (linear)  or  1 - cos(t π / 2) (convex)

with logits z, label y, K classes, and n_k training images in class k: ε goes from `tail` at the smallest
class to `head` at the largest. If all classes have the same size, t = 0: data without a head are smoothed by `tail`.
Meant for the second stage of decoupled training, where only the classifier is trained.

Reference: Zhong et al., "Improving Calibration for Long-Tailed Recognition", CVPR 2021, section 3.2. Its code spreads
ε over all K classes, including the label; this follows the equation.
"""

import math
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from longtail._typing import Reduction
from longtail.losses._checks import ClassCountsLike, check_inputs, check_share, counts_for
from longtail.losses._reduction import reduce_losses
from longtail.losses.base import LOSSES, LongTailLoss

SmoothingShape = Literal["concave", "linear", "convex"]


def label_aware_smoothing_loss(
    logits: Tensor,
    target: Tensor,
    *,
    class_counts: ClassCountsLike,
    head: float = 0.3,
    tail: float = 0.0,
    shape: SmoothingShape = "concave",
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-entropy with class-dependent label smoothing; see the module's docstring for the equation.

    Args:
        logits: (B, K) with K >= 2, any floating dtype; computed in float32 or better.
        target: (B,), class indices.
        class_counts: training images of each class, at least 1.
        head: ε of the largest class, 0 <= ε < 1. The defaults are those of the paper's code for CIFAR-10-LT;
            for CIFAR-100-LT it has 0.4 and 0.1.
        tail: ε of the smallest class.
        shape: how ε grows with the class size: "concave", "linear" or "convex".
        reduction: "none", "mean" over the batch, or "sum".

    Example:
        >>> import torch
        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
        >>> label_aware_smoothing_loss(logits, torch.tensor([0, 1]), class_counts=[9, 1], reduction="none")
        tensor([0.7269, 0.1269])
    """
    check_smoothing(head, tail, shape)
    logits = check_inputs(logits, target, reduction)
    if logits.shape[1] < 2:
        raise ValueError("logits must have at least 2 classes to smooth a label over, got 1")
    counts = counts_for(logits, class_counts)
    spread = counts.max() - counts.min()
    # 0 / 1 instead of 0 / 0 if all classes have the same size.
    share = (counts - counts.min()) / torch.where(spread > 0, spread, 1)
    smoothing = (tail + (head - tail) * _grow(share, shape))[target]
    log_p = F.log_softmax(logits, dim=1)
    log_p_label = log_p.gather(1, target[:, None]).squeeze(1)
    log_p_others = (log_p.sum(dim=1) - log_p_label) / (logits.shape[1] - 1)
    losses = -(1 - smoothing) * log_p_label - smoothing * log_p_others
    return reduce_losses(losses, reduction)


def check_smoothing(head: float, tail: float, shape: str) -> None:
    """Raise unless `head` and `tail` are at least 0 and less than 1, and `shape` is known."""
    check_share(head=head, tail=tail)
    if shape not in get_args(SmoothingShape):
        raise ValueError(f"shape must be one of {', '.join(get_args(SmoothingShape))}, got {shape!r}")


def _grow(share: Tensor, shape: SmoothingShape) -> Tensor:
    if shape == "concave":
        return torch.sin(share * math.pi / 2)
    return share if shape == "linear" else 1 - torch.cos(share * math.pi / 2)


@LOSSES.register("label_aware_smoothing")
class LabelAwareSmoothingLoss(LongTailLoss):
    """See :func:`label_aware_smoothing_loss`."""

    def __init__(
        self,
        class_counts: ClassCountsLike,
        *,
        head: float = 0.3,
        tail: float = 0.0,
        shape: SmoothingShape = "concave",
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(class_counts, reduction=reduction)
        check_smoothing(head, tail, shape)
        self.head = head
        self.tail = tail
        self.shape: SmoothingShape = shape

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of `logits` (B, K) for the labels `target` (B,)."""
        return label_aware_smoothing_loss(
            logits,
            target,
            class_counts=self.class_counts,
            head=self.head,
            tail=self.tail,
            shape=self.shape,
            reduction=self.reduction,
        )
