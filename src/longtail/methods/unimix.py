"""UniMix + Bayias: images mixed towards rare classes, and the bias of the priors taken out of the loss.

    L = mean_i [ λ_i ℓ(z_i, y_i) + (1 - λ_i) ℓ(z_i, y_j) ],    ℓ(z, y) = CE(z + log π - log(1 / K), y)

with the logits z_i of the mixed image λ_i x_i + (1 - λ_i) x_j, priors π of K classes, and the partner j and the weight
λ_i of `longtail.data.mixing.unimix`. The constant does not change a softmax, so ℓ is balanced softmax. Together the
authors call them TCM.

Partners come from the batch of a rank, before it is cut into micro-batches.

Reference: Xu et al., "Towards Calibrated Model for Long-Tailed Visual Recognition from Prior Perspective", NeurIPS
2021, sections 3.2 and 3.3; α and τ are those of the authors' code.
"""

from collections.abc import Sequence

import torch
from torch import nn

from longtail.data.mixing import Mixed, unimix
from longtail.data.views import Batch
from longtail.losses import BalancedSoftmaxLoss
from longtail.methods.base import METHODS, Method, MethodOutput, sum_parts


@METHODS.register("unimix")
class UniMix(Method):
    """Mixed images and balanced softmax; see the module's docstring.

    Args:
        model: from images to logits; trained in place.
        class_counts: training images of each class, at least 1.
        alpha: α of the Beta distribution, above 0.
        tau: τ, the power of the class size by which partners are drawn; below 0 favours rare classes.
        view: a name in `VIEWS`; the authors' own is "weak".
        sampler: a name in `SAMPLERS`.

    Example:
        >>> from longtail.models import create_model
        >>> method = UniMix(create_model("resnet8", 3), [500, 50, 5], tau=-0.5)
    """

    passes = 1.0

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        alpha: float = 0.8,
        tau: float = -0.1,
        view: str = "strong",
        sampler: str = "instance",
    ) -> None:
        super().__init__(model, class_counts, views=(view,), samplers=(sampler,))
        self.alpha, self.tau, self.view, self.sampler = alpha, tau, view, sampler
        self.criterion = BalancedSoftmaxLoss(self.class_counts, reduction="none")
        self._mix(torch.zeros(1, 1, 1, 1), torch.zeros(1, dtype=torch.int64), torch.Generator())  # refuses bad settings

    def prepare(self, *batches: Batch) -> tuple[Batch, ...]:
        """Mix the images; the partners' labels and the weights go along."""
        (batch,) = batches
        (images,) = self.views_of(batch)
        mixed = self._mix(images, batch.target, torch.default_generator)
        extra = {**batch.extra, "partner": mixed.target_b, "share": mixed.weight}
        return (batch._replace(views=(mixed.images,), extra=extra),)

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of one batch, as `prepare` leaves it; a batch that was not mixed has its own labels alone."""
        (batch,) = batches
        (images,) = self.views_of(batch)
        logits = self.model(images)
        losses = self.criterion(logits, batch.target)
        if "partner" in batch.extra:
            losses = torch.lerp(self.criterion(logits, batch.extra["partner"]), losses, batch.extra["share"])
        return sum_parts(logits, {"classification": losses.mean()})

    def _mix(self, images: torch.Tensor, target: torch.Tensor, generator: torch.Generator) -> Mixed:
        return unimix(
            images, target, class_counts=self.class_counts, alpha=self.alpha, tau=self.tau, generator=generator
        )
