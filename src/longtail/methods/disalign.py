"""DisAlign: cross-entropy first, then a correction of each class's logit, as far as a gate of the features lets it.

    z'_c = (1 + g a_c) z_c + g b_c,    g = sigmoid(v · h + u),    z = W h + b
    L    = Σ_i w_{y_i} CE(z'_i, y_i) / Σ_i w_{y_i},    w_c ∝ π_c^{-ρ}

with the features h of an image, its label y and the priors π. Until `classifier_from` there is no correction, w = 1,
and the network learns. Then the network and W are fixed and the correction, a, b, v and u, learns from images as they
come. It starts at none, where the authors' a starts at 1: the second stage begins as the network it corrects. With
ρ = 0 it learns nothing about class sizes; the larger ρ, the more rare classes gain.

Reference: Zhang et al., "Distribution Alignment: A Unified Framework for Long-tail Visual Recognition", CVPR 2021; ρ is
that of its code for ImageNet-LT. It has no setting for CIFAR.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.losses import CrossEntropyLoss
from longtail.methods._checks import linear_classifier
from longtail.methods._classifiers import replace_classifier
from longtail.methods._losses import batch_loss, weigh_batch
from longtail.methods._norms import NormPolicy
from longtail.methods._second_stage import SecondStage
from longtail.methods.base import METHODS, Method, MethodOutput, sum_parts
from longtail.nn.aligned_classifier import AlignedClassifier


@METHODS.register("disalign")
class DisAlign(Method):
    """Cross-entropy, then a gated correction of the logits; see the module's docstring.

    Args:
        model: from images to logits, with a linear classifier, which becomes an `AlignedClassifier`.
        class_counts: training images of each class.
        power: ρ, zero or more.
        classifier_from: the share of the training after which the correction learns alone, moved to a whole epoch.
        classifier_lr_scale: multiplies the learning rate of the second stage.
        norm_policy: "frozen", "shifted" or "reestimated"; see `FixedPart`.
        view: a name in `VIEWS`.

    Example:
        >>> from longtail.models import create_model
        >>> method = DisAlign(create_model("resnet8", 3), [500, 50, 5])
        >>> method.set_progress(0.9)
        >>> method.samplers
        ('instance',)
    """

    skips_parameters = True
    class_weights: Tensor
    departures = ("the correction starts at none",)

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        power: float = 1.2,
        classifier_from: float = 0.8,
        classifier_lr_scale: float = 1.0,
        norm_policy: NormPolicy = "frozen",
        view: str = "strong",
    ) -> None:
        if not 0 <= power < math.inf:
            raise ValueError(f"power must be a finite number of zero or more, got {power}")
        aligned = AlignedClassifier(linear_classifier(model, "to be corrected"))
        super().__init__(model, class_counts, views=(view,))
        replace_classifier(model, aligned)
        self.classifier_from, self.classifier_lr_scale = classifier_from, classifier_lr_scale
        self.norm_policy, self.view, self.power = norm_policy, view, power
        self.criterion = CrossEntropyLoss(self.class_counts, reduction="none")
        weights = torch.tensor(self.class_counts.priors, dtype=torch.float32) ** -power
        self.register_buffer("class_weights", weights * len(weights) / weights.sum(), persistent=False)
        self._classifier = [aligned]
        self.second = SecondStage(model, aligned, norm_policy, start=classifier_from, lr_scale=classifier_lr_scale)
        self.stages = self.second.starts

    def plan(self, epochs: int) -> None:
        """Give each stage whole epochs."""
        self.stages = self.second.plan(epochs)
        self.classifier_from = self.stages[1]

    def set_progress(self, progress: float) -> None:
        """Begin, or go on with, the stage of this position."""
        super().set_progress(progress)
        self.second.set_progress(progress)
        self.lr_scale = self.second.lr_scale

    def prepare(self, *batches: Batch) -> tuple[Batch, ...]:
        """Weigh the labels, in the second stage."""
        (batch,) = batches
        return (weigh_batch(batch, self.criterion, self._weights),)

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of the stage."""
        (batch,) = batches
        (images,) = self.views_of(batch)
        (classifier,) = self._classifier
        with self.second.gradients():
            features = self.features(images)
            logits = classifier.linear(features)
        if self.second.on:
            logits = classifier.correct(logits, features)
        return sum_parts(logits, {"classification": batch_loss(self.criterion, logits, batch, self._weights)})

    @property
    def _weights(self) -> Tensor | None:
        return self.class_weights if self.second.on else None
