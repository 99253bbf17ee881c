"""Learnable weight scaling (LWS): cross-entropy first, then one scale for each class, from class-balanced images.

    L = CE(f ⊙ z, y),    z = W h + b

with the features h of an image and its label y. Until `classifier_from` f = 1 and everything else learns from images as
they come. Then everything but f is fixed, and images are drawn class-balanced. The directions of W are those that all
images have taught; only how far each class reaches is changed.

The norms of the network are fixed too: `norm_policy` says what becomes of their statistics, see `FixedPart`. The
authors' code leaves them in training mode, which moves them with class-balanced batches: that is "shifted".

Reference: Kang et al., "Decoupling Representation and Classifier for Long-Tailed Recognition", ICLR 2020, section 4.4.
"""

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import nn

from longtail.data.views import Batch
from longtail.methods._checks import linear_classifier
from longtail.methods._classifiers import replace_classifier
from longtail.methods._norms import NormPolicy
from longtail.methods._second_stage import SecondStage
from longtail.methods.base import METHODS, Method, MethodOutput, sum_parts
from longtail.nn.scaled_classifier import ScaledClassifier


@METHODS.register("lws")
class LWS(Method):
    """Cross-entropy, then scales of the classes; see the module's docstring.

    Args:
        model: from images to logits, with a linear classifier, which becomes a `ScaledClassifier`.
        class_counts: training images of each class.
        classifier_from: the share of the training after which the scales learn alone, moved to a whole epoch.
        classifier_lr_scale: multiplies the learning rate of the second stage.
        norm_policy: "frozen", "shifted" or "reestimated"; see `FixedPart`.
        view: a name in `VIEWS`.

    Example:
        >>> from longtail.models import create_model
        >>> method = LWS(create_model("resnet8", 3), [500, 50, 5])
        >>> method.set_progress(0.9)
        >>> method.samplers
        ('class_balanced',)
    """

    skips_parameters = True
    departures = ("batch norms are fixed in the second stage", "scales have no weight decay")

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        classifier_from: float = 0.8,
        classifier_lr_scale: float = 1.0,
        norm_policy: NormPolicy = "frozen",
        view: str = "strong",
    ) -> None:
        scaled = ScaledClassifier(linear_classifier(model, "to be scaled"))
        super().__init__(model, class_counts, views=(view,))
        replace_classifier(model, scaled)
        self.classifier_from, self.classifier_lr_scale = classifier_from, classifier_lr_scale
        self.norm_policy, self.view = norm_policy, view
        self._classifier = [scaled]
        self.second = SecondStage(model, scaled, norm_policy, start=classifier_from, lr_scale=classifier_lr_scale)
        self.stages = self.second.starts

    def plan(self, epochs: int) -> None:
        """Give each stage whole epochs."""
        self.stages = self.second.plan(epochs)
        self.classifier_from = self.stages[1]

    def set_progress(self, progress: float) -> None:
        """Begin, or go on with, the stage of this position."""
        super().set_progress(progress)
        self.second.set_progress(progress)
        self.samplers = ("class_balanced" if self.second.on else "instance",)
        self.lr_scale = self.second.lr_scale

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of the stage."""
        (batch,) = batches
        (images,) = self.views_of(batch)
        (classifier,) = self._classifier
        with self.second.gradients():
            logits = classifier.linear(self.features(images)).float()
        if self.second.on:
            logits = classifier.scale * logits
        return sum_parts(logits, {"classification": F.cross_entropy(logits, batch.target)})

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The scales apart, without weight decay: it would pull them to 0, not to 1."""
        (classifier,) = self._classifier
        given = [p for p in self.parameters() if p.requires_grad and p is not classifier.scale]
        scales = [classifier.scale] if classifier.scale.requires_grad else []
        return [{"params": given}, {"params": scales, "weight_decay": 0.0}]
