"""LDAM: a margin for each class, wider for rare classes, with class weights late in the training.

    L(z, y) = -w_y log( e^(s (z_y - Δ_y)) / ( e^(s (z_y - Δ_y)) + Σ_{k≠y} e^(s z_k) ) )
    Δ_k     = Δ_max (n_min / n_k)^(1/4)

with logits z, label y, scale s, n_k training images in class k, n_min in the smallest class and Δ_max its margin.
Margins need bounded logits: the paper's are cosines of normalised features and normalised classifier rows, in
[-1, 1]. For unbounded logits s = 30 is far too large; set `scale=1` there.

Deferred re-weighting (DRW): w = 1 for the first 80 % of the training (160 of the paper's 200 epochs), then the
weights of `class_weights` by effective number.

Reference: Cao et al., "Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss", NeurIPS 2019,
section 3 and algorithm 1 (DRW); s and Δ_max are those of its code.
"""

import torch.nn.functional as F
from torch import Tensor

from longtail._typing import Reduction
from longtail.losses._checks import (
    ClassCountsLike,
    check_at_least_zero,
    check_inputs,
    check_share,
    counts_for,
)
from longtail.losses.base import LOSSES, LongTailLoss
from longtail.losses.class_weights import class_weights


def ldam_loss(
    logits: Tensor,
    target: Tensor,
    *,
    class_counts: ClassCountsLike,
    max_margin: float = 0.5,
    scale: float = 30.0,
    reweight: bool = False,
    beta: float = 0.9999,
    reduction: Reduction = "mean",
) -> Tensor:
    """Label-distribution-aware margin loss; see the module's docstring for the equation.

    Args:
        logits: (B, K), cosines; any floating dtype, computed in float32 or better.
        target: (B,), class indices.
        class_counts: training images of each class, at least 1.
        max_margin: Δ_max, the margin of the smallest class.
        scale: s, which multiplies the cosines before the softmax.
        reweight: whether the class weights are on; off until late in the training, see the module's docstring.
        beta: β of the effective number in those weights, 0 <= β < 1.
        reduction: "none", "mean" (weighted by the labels' weights, if on), or "sum".

    Example:
        >>> import torch
        >>> cosines, target = torch.tensor([[0.1, 0.6]]), torch.tensor([1])
        >>> ldam_loss(cosines, target, class_counts=[16, 1])  # the margin eats the lead: log 2
        tensor(0.6931)
    """
    check_at_least_zero(max_margin=max_margin, scale=scale)
    check_share(beta=beta)
    logits = check_inputs(logits, target, reduction)
    counts = counts_for(logits, class_counts)
    margins = max_margin * (counts.min() / counts) ** 0.25
    is_label = F.one_hot(target, logits.shape[1]).to(logits)
    weight = class_weights(counts, beta=beta) if reweight else None
    return F.cross_entropy(scale * (logits - is_label * margins), target, weight=weight, reduction=reduction)


@LOSSES.register("ldam")
class LDAMLoss(LongTailLoss):
    """See :func:`ldam_loss`.

    Args:
        class_counts: training images of each class.
        max_margin: Δ_max, the margin of the smallest class.
        scale: s, which multiplies the cosines before the softmax.
        beta: β of the effective number in the weights.
        reweight_from: the progress from which the weights are on: 0.8 in the paper, 0 for always, 1 for never (LDAM
            without DRW). `set_progress` moves the progress, which starts at 0.
        reduction: "none", "mean" or "sum".
    """

    def __init__(
        self,
        class_counts: ClassCountsLike,
        *,
        max_margin: float = 0.5,
        scale: float = 30.0,
        beta: float = 0.9999,
        reweight_from: float = 0.8,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(class_counts, reduction=reduction)
        check_at_least_zero(max_margin=max_margin, scale=scale)
        check_share(beta=beta)
        if not 0 <= reweight_from <= 1:
            raise ValueError(f"reweight_from must be from 0 to 1, got {reweight_from} (a share of the training)")
        self.max_margin = max_margin
        self.scale = scale
        self.beta = beta
        self.reweight_from = reweight_from
        self.set_progress(0.0)

    def set_progress(self, progress: float) -> None:
        """Turn the class weights on once `progress` has reached `reweight_from`."""
        super().set_progress(progress)
        self.reweight = self.reweight_from <= progress and self.reweight_from < 1

    def label_weights(self) -> Tensor | None:
        """Those of `class_weights`, once they are on."""
        return class_weights(self.class_counts, beta=self.beta) if self.reweight else None

    def cosine_scale(self) -> float:
        """The scale s."""
        return self.scale

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of `logits` (B, K) for the labels `target` (B,)."""
        return ldam_loss(
            logits,
            target,
            class_counts=self.class_counts,
            max_margin=self.max_margin,
            scale=self.scale,
            reweight=self.reweight,
            beta=self.beta,
            reduction=self.reduction,
        )
