"""IB: plain cross-entropy first, then each image weighs less the more it moves the decision boundary.

    L = mean_i w_{y_i} (1 - p_{y_i})^γ (-log p_{y_i}) α / ( ‖p_i - e_{y_i}‖₁ ‖h_i‖₁ + ε ),    p = softmax(z)

from `start` on, and mean_i -log p_{y_i} before, with logits z, label y and its indicator e_y, features h before the
classifier, class weights w_k ∝ 1 / n_k with mean 1, n_k training images of class k, and ε = 0.001. The product of the
two norms is the size of the gradient of the classifier's weights, which stands for the influence of an image; γ = 0 is
IB, and γ > 0 IB + Focal.

α only scales: with the authors' 1000 the loss is above cross-entropy, and they divide the learning rate by 100 where it
sets in. `influence_lr_scale` divides by 10: on small data a hundredth learns nothing any more. On held-out training
images of the digits, 0.01 has 55.0 ± 5.7 % balanced accuracy and 0.1 has 68.0 ± 2.4, where cross-entropy has 56.4 ± 2.3
(three seeds, benchmarks/studies/methods_learn). The recipes for CIFAR have the authors' 0.01. Gradients pass through
the influence, as in the authors' code.

Two faults of that code are not repeated: the focal factor takes p from the unweighted cross-entropy, and there is no
stray factor of 10.

Reference: Park et al., "Influence-Balanced Loss for Imbalanced Visual Classification", ICCV 2021; α, γ, ε and `start`
are those of the authors' code.
"""

import math
from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.losses import class_weights, focal_loss
from longtail.methods.base import METHODS, HeadedModel, Method, MethodOutput, check_headed, sum_parts

EPSILON = 1e-3


def influence(logits: Tensor, features: Tensor, target: Tensor) -> Tensor:
    """‖p - e_y‖₁ ‖h‖₁ of each image, (B,), in float32 or better.

    Args:
        logits: z, (B, K).
        features: h, (B, D).
        target: y, (B,).
    """
    logits, features = (x if x.dtype == torch.float64 else x.float() for x in (logits, features))
    # Σ_k |p_k - e_yk| = 2 (1 - p_y), by which it does not cancel where p_y is near 1.
    missing = -torch.expm1(-F.cross_entropy(logits, target, reduction="none"))
    return 2 * missing * features.abs().sum(1)


@METHODS.register("ib")
class IB(Method):
    """Weights by influence in the second half of the training; see the module's docstring.

    Args:
        model: from images to logits, with `get_classifier()` as timm's models have it; trained in place.
        class_counts: training images of each class, at least 1.
        gamma: γ of the focal factor, zero or more; 0 for none.
        alpha: α, above 0.
        start: the share of the training after which the weights set in; 1 for never.
        influence_lr_scale: multiplies the learning rate from then on.
        view: a name in `VIEWS`; the authors' own is "weak".
        sampler: a name in `SAMPLERS`.

    Example:
        >>> from longtail.models import create_model
        >>> method = IB(create_model("resnet8", 3), [500, 50, 5])
        >>> method.set_progress(0.5)
        >>> method.lr_scale
        0.1
    """

    weights: Tensor
    passes = 1.0
    departures = ("the focal factor takes the probability from the unweighted cross-entropy",)

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        gamma: float = 1.0,
        alpha: float = 1000.0,
        start: float = 0.5,
        influence_lr_scale: float = 0.1,
        view: str = "strong",
        sampler: str = "instance",
    ) -> None:
        if not 0 <= gamma < math.inf:
            raise ValueError(f"gamma must be a finite number of zero or more, got {gamma}")
        for name, value in {"alpha": alpha, "influence_lr_scale": influence_lr_scale}.items():
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value}")
        if not 0 <= start <= 1:
            raise ValueError(f"start must be from 0 to 1, got {start} (a share of the training)")
        check_headed(model, "whose features the influence is computed from")
        super().__init__(model, class_counts, views=(view,), samplers=(sampler,))
        self.gamma, self.alpha, self.start, self.influence_lr_scale = gamma, alpha, start, influence_lr_scale
        self.view, self.sampler, self.weighs = view, sampler, False
        weights = class_weights(self.class_counts, weighting="inverse_frequency")
        self.register_buffer("weights", weights, persistent=False)
        self.set_progress(0.0)

    def set_progress(self, progress: float) -> None:
        """Turn the weights on once `progress` has reached `start`."""
        super().set_progress(progress)
        self.weighs = self.start <= progress and self.start < 1
        self.lr_scale = self.influence_lr_scale if self.weighs else 1.0

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of one batch."""
        (batch,) = batches
        (images,) = self.views_of(batch)
        features = self.features(images)
        logits = cast("HeadedModel", self.model).get_classifier()(features)
        if self.weighs:
            factor = self.alpha * self.weights[batch.target] / (influence(logits, features, batch.target) + EPSILON)
            losses = focal_loss(logits, batch.target, gamma=self.gamma, reduction="none")
            return sum_parts(logits, {"classification": (factor * losses).mean()})
        return sum_parts(logits, {"classification": F.cross_entropy(logits.float(), batch.target)})
