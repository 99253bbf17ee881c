"""Weight balancing: a network with a tuned weight decay, then its classifier with much decay and short weights.

Stage 1:  L = CE(z, y), z = W h + b, with the weight decay of the run (`optim.weight_decay`), which matters most: the
          authors find that its product with the learning rate should be about 5e-5
Stage 2:  L = Σ_i w_{y_i} CE(z_i, y_i) / Σ_i w_{y_i} + λ/2 (‖W‖² + ‖b‖²), and after each step the norm of the weights of
          each class is clipped, W_c ← W_c min(1, δ / ‖W_c‖)  (MaxNorm)

with the features h of an image, fixed in stage 2, its label y and the class weights w by effective number. Frequent
classes have the longest weights; decay and the ball take their head start. λ comes on top of the run's own decay.

The authors' code takes δ from the network, a tenth of the way from the shortest to the longest ‖W_c‖ as stage 2 begins;
`max_norm=None` does so, as in the recipes for CIFAR. The default is a length of ours. Its loss in stage 2 is the binary
cross-entropy of the softmax of each class, weighted by image; ours is the class-balanced cross-entropy.

Reference: Alshammari et al., "Long-Tailed Recognition via Weight Balancing", CVPR 2022, sections 3 and 4.
"""

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.losses import CrossEntropyLoss, class_weights
from longtail.methods._checks import check_positive, linear_classifier
from longtail.methods._losses import batch_loss, weigh_batch
from longtail.methods._norms import NormPolicy
from longtail.methods._second_stage import SecondStage
from longtail.methods.base import METHODS, HeadedModel, Method, MethodOutput, sum_parts

# Of the way from the shortest to the longest row, in the authors' code.
_RADIUS_SHARE = 0.1


def clip_rows(weight: Tensor, max_norm: float | Tensor) -> None:
    """Scale each row that is longer than `max_norm` down to it, in place."""
    weight.mul_((max_norm / weight.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp_max(1.0))


@METHODS.register("weight_balancing")
class WeightBalancing(Method):
    """Cross-entropy, then a classifier of short weights; see the module's docstring.

    Args:
        model: from images to logits, with a linear classifier; trained in place.
        class_counts: training images of each class.
        classifier_decay: λ, zero or more.
        max_norm: δ, positive; None for the authors', which the second stage finds as it begins.
        beta: β of the class weights, see `class_weights`.
        classifier_from: the share of the training after which the classifier learns alone, moved to a whole epoch.
        classifier_lr_scale: multiplies the learning rate of the second stage.
        norm_policy: "frozen", "shifted" or "reestimated"; see `FixedPart`.
        view: a name in `VIEWS`.

    Example:
        >>> from longtail.models import create_model
        >>> method = WeightBalancing(create_model("resnet8", 3), [500, 50, 5])
        >>> method.set_progress(0.9)
        >>> method.samplers
        ('instance',)
    """

    class_weights: Tensor
    radius: Tensor
    skips_parameters = True
    departures = ("the decay of the run goes on in the second stage", "the second loss is class-balanced cross-entropy")

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        classifier_decay: float = 0.1,
        max_norm: float | None = 0.5,
        beta: float = 0.9999,
        classifier_from: float = 0.9,
        classifier_lr_scale: float = 1.0,
        norm_policy: NormPolicy = "frozen",
        view: str = "strong",
    ) -> None:
        if not 0 <= classifier_decay < math.inf:
            raise ValueError(f"classifier_decay must be a finite number of zero or more, got {classifier_decay}")
        check_positive(max_norm=1.0 if max_norm is None else max_norm)
        linear_classifier(model, "whose weights can be kept short")
        super().__init__(model, class_counts, views=(view,))
        self.classifier_from, self.classifier_lr_scale = classifier_from, classifier_lr_scale
        self.norm_policy, self.view = norm_policy, view
        self.classifier_decay, self.max_norm, self.beta = classifier_decay, max_norm, beta
        self.criterion = CrossEntropyLoss(self.class_counts, reduction="none")
        self.register_buffer("class_weights", class_weights(self.class_counts, beta=beta), persistent=False)
        self.register_buffer("radius", torch.tensor(float("inf") if max_norm is None else float(max_norm)))
        classifier = self._classifier
        self.second = SecondStage(model, classifier, norm_policy, start=classifier_from, lr_scale=classifier_lr_scale)
        self.stages = self.second.starts

    def plan(self, epochs: int) -> None:
        """Give each stage whole epochs."""
        self.stages = self.second.plan(epochs)
        self.classifier_from = self.stages[1]

    def set_progress(self, progress: float) -> None:
        """Begin, or go on with, the stage of this position."""
        super().set_progress(progress)
        if self.second.set_progress(progress):
            if self.max_norm is None:
                low, high = self._classifier.get_parameter("weight").detach().norm(dim=1).aminmax()
                self.radius.copy_(torch.lerp(low, high, _RADIUS_SHARE))
            self.after_step()
        self.lr_scale = self.second.lr_scale

    def prepare(self, *batches: Batch) -> tuple[Batch, ...]:
        """Weigh the labels, in the second stage."""
        (batch,) = batches
        return (weigh_batch(batch, self.criterion, self._weights),)

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of the stage."""
        (batch,) = batches
        (images,) = self.views_of(batch)
        with self.second.gradients():
            features = self.features(images)
        logits = self._classifier(features)
        parts = {"classification": batch_loss(self.criterion, logits, batch, self._weights)}
        if self.second.on:
            squares = torch.stack([parameter.square().sum() for parameter in self._classifier.parameters()])
            parts["decay"] = self.classifier_decay / 2 * squares.sum()
        return sum_parts(logits, parts)

    @torch.no_grad()
    def after_step(self) -> None:
        """Clip the weights of each class, in the second stage."""
        if self.second.on:
            clip_rows(self._classifier.get_parameter("weight"), self.radius)

    @property
    def _classifier(self) -> nn.Module:
        return cast("HeadedModel", self.model).get_classifier()

    @property
    def _weights(self) -> Tensor | None:
        return self.class_weights if self.second.on else None
