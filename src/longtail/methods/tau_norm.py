"""τ-normalisation: cross-entropy, and at inference weights that are divided by a power of their norms.

    training:   L = CE(W h + b, y)
    inference:  z_c = w_c · h / ‖w_c‖^τ

with the features h of an image, its label y, and the row w_c of W. The norms grow with the number of images of a class;
τ = 1 removes them, τ = 0 keeps the decisions of W without its bias. The training is that of cross-entropy, so it costs
nothing.

Reference: Kang et al., "Decoupling Representation and Classifier for Long-Tailed Recognition", ICLR 2020. There
τ is chosen on validation images; here it is a setting.
"""

import math
from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.methods._checks import linear_classifier
from longtail.methods._classifiers import replace_classifier
from longtail.methods.base import METHODS, Method, MethodOutput, sum_parts


class TauNormClassifier(nn.Module):
    """A linear layer whose rows, in eval mode, are divided by their norms to the power τ; then it has no bias.

    Args:
        linear: from features (B, D) to logits (B, K); taken over.
        tau: τ.
    """

    def __init__(self, linear: nn.Linear, tau: float) -> None:
        super().__init__()
        self.linear, self.tau = linear, tau

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, D) to logits (B, K)."""
        if self.training:
            logits: Tensor = self.linear(features)
            return logits
        weight = self.linear.weight
        return F.linear(features, weight / weight.norm(dim=1, keepdim=True).clamp_min(1e-12) ** self.tau)


@METHODS.register("tau_norm")
class TauNorm(Method):
    """Cross-entropy, with norms divided out at inference; see the module's docstring.

    Args:
        model: from images to logits, with a linear classifier, which becomes a `TauNormClassifier`.
        class_counts: training images of each class.
        tau: τ, zero or more.
        view: a name in `VIEWS`.
        sampler: a name in `SAMPLERS`.

    Example:
        >>> from longtail.models import create_model
        >>> TauNorm(create_model("resnet8", 3), [500, 50, 5]).model.classifier.tau
        1.0
    """

    departures = ("tau is a setting, not chosen on validation images",)

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        tau: float = 1.0,
        view: str = "strong",
        sampler: str = "instance",
    ) -> None:
        if not 0 <= tau < math.inf:
            raise ValueError(f"tau must be a finite number of zero or more, got {tau}")
        classifier = TauNormClassifier(linear_classifier(model, "whose norms can be divided out"), tau)
        super().__init__(model, class_counts, views=(view,), samplers=(sampler,))
        replace_classifier(model, classifier)
        self.tau, self.view, self.sampler = tau, view, sampler

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of one batch."""
        (batch,) = batches
        (images,) = self.views_of(batch)
        logits = self.model(images)
        return sum_parts(logits, {"classification": F.cross_entropy(logits.float(), batch.target)})
