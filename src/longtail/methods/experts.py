"""Logit-adjusted experts: copies of the last stage and the head, each balanced a little differently, and their mean.

    L = Σ_j CE(z_j + τ_j log π, y),    prediction: mean_j z_j

with the logits z_j of expert j, priors π of the classes and one strength τ_j for each expert. Expert j estimates the
posterior under priors ∝ π^(1 - τ_j); the mean of the logits, a product of experts, does so under π^(1 - mean_j τ_j).
Where the strengths average to 1, as 0.9, 1.0 and 1.1 do, that is the balanced one. What the experts gain over one
network is that of an ensemble, at the cost of one more stage each: three experts on a CIFAR ResNet take 1.7 times its
multiplications.

Experts start from the same last stage, so that pretrained weights serve; their classifiers, which are new but for the
first, drive them apart. There is no distillation and no term for their diversity.

Reference: Aimar et al., "Balanced Product of Calibrated Experts for Long-Tailed Recognition", CVPR 2023, section 3, for
the mean of logit-adjusted experts; its own strengths lie further apart.
"""

import math
from collections.abc import Sequence

import torch
from torch import nn

from longtail.data.views import Batch
from longtail.losses import logit_adjustment_loss
from longtail.methods._experts import ExpertEnsemble
from longtail.methods.base import METHODS, Method, MethodOutput, sum_parts

_STRENGTHS = (0.9, 1.0, 1.1)


@METHODS.register("experts")
class Experts(Method):
    """One trunk, a last stage and a head for each strength; see the module's docstring.

    Args:
        model: one that `split_stages` knows; replaced by an `ExpertEnsemble` of its parts.
        class_counts: training images of each class, at least 1.
        strengths: τ of each expert, zero or more; None for 0.9, 1.0 and 1.1. They should average to 1.
        view: a name in `VIEWS`.
        sampler: a name in `SAMPLERS`.

    Example:
        >>> from longtail.models import create_model
        >>> method = Experts(create_model("resnet8", 3), [500, 50, 5])
        >>> method.strengths
        (0.9, 1.0, 1.1)
    """

    model: ExpertEnsemble
    passes = 1.7
    departures = ("strengths lie closer together", "experts start from the same last stage")

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        strengths: Sequence[float] | None = None,
        view: str = "strong",
        sampler: str = "instance",
    ) -> None:
        chosen = _STRENGTHS if strengths is None else tuple(strengths)
        if not chosen or not all(0 <= strength < math.inf for strength in chosen):
            raise ValueError(f"strengths must be finite numbers of zero or more, one an expert, got {strengths}")
        ensemble = ExpertEnsemble(model, len(chosen), stages=1)
        super().__init__(ensemble, class_counts, views=(view,), samplers=(sampler,))
        self.strengths, self.view, self.sampler = chosen, view, sampler

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of one batch."""
        (batch,) = batches
        (images,) = self.views_of(batch)
        logits = self.model.classifier.of_each(self.model.forward_features(images))
        losses = [
            logit_adjustment_loss(each, batch.target, class_counts=self.class_counts, strength=strength)
            for each, strength in zip(logits, self.strengths, strict=True)
        ]
        return sum_parts(logits.mean(0), {"classification": torch.stack(losses).sum()})
