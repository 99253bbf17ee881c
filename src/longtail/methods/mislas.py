"""MiSLAS: mixup for the features, then classifier and class scales with labels that are smoothed by class size.

Stage 1:  L = λ CE(z, y_i) + (1 - λ) CE(z, y_j),    x = λ x_i + (1 - λ) x_j,  λ ~ Beta(α, α)
Stage 2:  L = label-aware smoothing of f ⊙ (W h + b), with images drawn class-balanced

with images x, labels y, logits z = W h + b, features h, and a scale f_c of each class, 1 at the start. In stage 2 the
features are fixed; W and b learn with `classifier_lr_scale` times the learning rate, and f with all of it. Labels of
frequent classes are smoothed more (`label_aware_smoothing_loss`), since networks are overconfident in them.

Class-balanced batches have other moments than those the batch norms have seen. "shifted" statistics follow them, as in
the authors' code for CIFAR-100-LT; for CIFAR-10-LT they are left alone, "frozen". That is the default: where a class
has one image, statistics follow its repetitions. On held-out training images of the digits, "shifted" in the last 5 %
of the training, the authors' share, has 58.7 ± 1.2 % balanced accuracy, "frozen" 63.3 ± 1.8, and "frozen" in the last
20 % 65.1 ± 0.5 (three seeds, benchmarks/studies/methods_learn). The authors spread the smoothed part over all classes,
ours over the others: see the loss.

Reference: Zhong et al., "Improving Calibration for Long-Tailed Recognition", CVPR 2021, sections 3.1 to 3.3; `head`,
`tail` and the scale of the learning rate are those of its code for CIFAR-10-LT at imbalance 100.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from longtail.data.mixing import mixup
from longtail.data.views import Batch
from longtail.losses import CrossEntropyLoss, LabelAwareSmoothingLoss
from longtail.methods._checks import check_positive, linear_classifier
from longtail.methods._classifiers import replace_classifier
from longtail.methods._losses import batch_loss, mixed_batch, weigh_batch
from longtail.methods._norms import NormPolicy
from longtail.methods._second_stage import SecondStage
from longtail.methods.base import METHODS, Method, MethodOutput, sum_parts
from longtail.nn.scaled_classifier import ScaledClassifier


@METHODS.register("mislas")
class MiSLAS(Method):
    """Mixup, then a classifier with smoothed labels; see the module's docstring.

    Args:
        model: from images to logits, with a linear classifier, which becomes a `ScaledClassifier`.
        class_counts: training images of each class.
        alpha: α of mixup.
        head: smoothing of the largest class, see `label_aware_smoothing_loss`.
        tail: that of the smallest.
        classifier_from: the share of the training after which classifier and scales learn, moved to a whole epoch.
        classifier_lr_scale: multiplies the learning rate of W and b in the second stage.
        norm_policy: "frozen", "shifted" or "reestimated"; see `FixedPart`.
        view: a name in `VIEWS`.

    Example:
        >>> from longtail.models import create_model
        >>> method = MiSLAS(create_model("resnet8", 3), [500, 50, 5])
        >>> method.set_progress(0.95)
        >>> method.samplers
        ('class_balanced',)
    """

    skips_parameters = True
    departures = ("smoothed labels spread over the other classes", "scales have no weight decay")

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        alpha: float = 1.0,
        head: float = 0.3,
        tail: float = 0.0,
        classifier_from: float = 0.8,
        classifier_lr_scale: float = 0.5,
        norm_policy: NormPolicy = "frozen",
        view: str = "strong",
    ) -> None:
        check_positive(alpha=alpha)
        scaled = ScaledClassifier(linear_classifier(model, "to be scaled"))
        super().__init__(model, class_counts, views=(view,))
        replace_classifier(model, scaled)
        self.classifier_from, self.classifier_lr_scale = classifier_from, classifier_lr_scale
        self.norm_policy, self.view = norm_policy, view
        self.alpha, self.head, self.tail = alpha, head, tail
        self.first_loss = CrossEntropyLoss(self.class_counts, reduction="none")
        self.second_loss = LabelAwareSmoothingLoss(self.class_counts, head=head, tail=tail)
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

    def prepare(self, *batches: Batch) -> tuple[Batch, ...]:
        """Mix the images, in the first stage."""
        (batch,) = batches
        if self.second.on:
            return (batch,)
        (images,) = self.views_of(batch)
        mixed = mixup(images, batch.target, alpha=self.alpha, generator=torch.default_generator)
        return (weigh_batch(mixed_batch(batch, mixed), self.first_loss),)

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of the stage."""
        (batch,) = batches
        (images,) = self.views_of(batch)
        (classifier,) = self._classifier
        with self.second.gradients():
            features = self.features(images)
        logits = classifier.linear(features)
        if not self.second.on:
            return sum_parts(logits, {"classification": batch_loss(self.first_loss, logits, batch)})
        logits = classifier.scale * logits
        return sum_parts(logits, {"classification": self.second_loss(logits, batch.target)})

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The scales apart, at the full learning rate, and without weight decay: it would pull them to 0, not to 1."""
        (classifier,) = self._classifier
        given = [p for p in self.parameters() if p.requires_grad and p is not classifier.scale]
        scales = [classifier.scale] if classifier.scale.requires_grad else []
        return [{"params": given}, {"params": scales, "weight_decay": 0.0, "lr_scale": 1 / self.classifier_lr_scale}]
