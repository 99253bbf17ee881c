"""PaCo: contrast with learned class centres beside the samples, so that frequent classes do not dominate.

An image i has logits z_i, whose classifier's rows are the centres of K classes with priors π, and a projection q_i of
length 1. Its contrasts A(i) are the other projections of the batch, its keys k by a momentum encoder (of another view),
and keys of earlier batches from a queue. With s_ij = q_i·k_j / t and P(i) ⊂ A(i) those with its label,

    Z_i = Σ_c π_c exp(z_ic) + γ Σ_{j ∈ A(i)} exp(s_ij)
    L_i = -[ β log(π_y exp(z_iy) / Z_i) + α Σ_{j ∈ P(i)} log(exp(s_ij) / Z_i) ] / (β + α |P(i)|)

Frequent classes have more positives in A(i), which would weigh on them; a small α leaves more to the centres. With
α = γ = 0 this is balanced softmax. The prediction is argmax z: only the network is deployed.

A class with one image has its own key, and those of earlier epochs, as positives. The loss compares the images of the
whole batch, over all ranks, so a batch is not cut into micro-batches.

Where ours differs from the authors' code: the queue starts empty, not with random keys and labels; it holds the keys
of the present batch too, so that 1024 older ones at batch size 128 are `queue_size` = 1152; the second view is cropped
and flipped, without colour changes; batch norms of the encoder see the images of a rank in order, not shuffled.

Reference: Cui et al., "Parametric Contrastive Learning", ICCV 2021, equations 3 and 4; α, β, γ, t, the sizes and the
momentum are those of its code for CIFAR-100-LT.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from longtail._errors import counted
from longtail.data.views import Batch
from longtail.methods._checks import check_positive
from longtail.methods._momentum_encoder import KeyQueue, MomentumEncoder, build_projection, unit
from longtail.methods._whole_batch import own_rows, whole_batch
from longtail.methods.base import METHODS, HeadedModel, Method, MethodOutput, sum_parts


def paco_loss(
    logits: Tensor,
    projections: Tensor,
    target: Tensor,
    queue: KeyQueue,
    *,
    priors: Tensor,
    sample_weight: float = 0.01,
    centre_weight: float = 1.0,
    contrast_weight: float = 1.0,
    temperature: float = 0.05,
) -> tuple[Tensor, Tensor]:
    """The two summands of the loss, β's and α's, averaged over the batch; see the module's docstring.

    Args:
        logits: z, (B, K).
        projections: q, (B, d), of length 1.
        target: y, (B,).
        queue: the keys, those of this batch among them.
        priors: π, (K,).
        sample_weight: α.
        centre_weight: β.
        contrast_weight: γ.
        temperature: t.
    """
    centres = logits.float() + priors.log()
    labels = torch.cat([target, queue.labels])
    similar = projections @ torch.cat([projections, queue.keys]).T / temperature
    absent = (labels < 0).expand_as(similar).clone()
    absent[:, : len(target)].fill_diagonal_(fill_value=True)  # an image is no contrast of itself
    weighed = similar.masked_fill(absent, -torch.inf) + similar.new_tensor(contrast_weight).log()
    total = torch.logsumexp(torch.cat([centres, weighed], dim=1), dim=1)
    positive = (labels == target[:, None]) & ~absent
    weight = centre_weight + sample_weight * positive.sum(1)
    centre = centre_weight * (total - centres.gather(1, target[:, None])[:, 0])
    sample = sample_weight * (positive * (total[:, None] - similar)).sum(1)
    return (centre / weight).mean(), (sample / weight).mean()


@METHODS.register("paco")
class PaCo(Method):
    """Contrast with class centres; see the module's docstring.

    Args:
        model: from images to logits, with a linear classifier; trained in place.
        class_counts: training images of each class.
        sample_weight: α, zero or more.
        centre_weight: β, positive.
        contrast_weight: γ, zero or more.
        temperature: t, positive.
        projection_size: d.
        queue_size: the keys that are kept, those of the present batch included.
        momentum: what is kept of the encoder at each step.
        view: a name in `VIEWS`, of what is trained on.
        key_view: the same, of what the encoder sees.
        sampler: a name in `SAMPLERS`.

    Example:
        >>> from longtail.models import create_model
        >>> method = PaCo(create_model("resnet8", 3), [500, 50, 5])
        >>> method.views
        ('strong', 'weak')
    """

    priors: Tensor

    passes = 1.33
    microbatches = False
    departures = (
        "the queue starts empty",
        "the second view has no colour changes",
        "keys see batches in order",
    )

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        sample_weight: float = 0.01,
        centre_weight: float = 1.0,
        contrast_weight: float = 1.0,
        temperature: float = 0.05,
        projection_size: int = 32,
        queue_size: int = 1152,
        momentum: float = 0.999,
        view: str = "strong",
        key_view: str = "weak",
        sampler: str = "instance",
    ) -> None:
        check_positive(centre_weight=centre_weight, temperature=temperature)
        for name, value in (("sample_weight", sample_weight), ("contrast_weight", contrast_weight)):
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a finite number of zero or more, got {value}")
        super().__init__(model, class_counts, views=(view, key_view), samplers=(sampler,))
        self.sample_weight, self.centre_weight, self.contrast_weight = sample_weight, centre_weight, contrast_weight
        self.temperature, self.projection_size, self.queue_size = temperature, projection_size, queue_size
        self.momentum, self.view, self.key_view, self.sampler = momentum, view, key_view, sampler
        self.projection = build_projection(model, projection_size, "to learn by contrast")
        self.encoder = MomentumEncoder(model, self.projection, momentum)
        self.queue = KeyQueue(queue_size, projection_size)
        self.register_buffer("priors", torch.tensor(self.class_counts.priors), persistent=False)

    def check_batch(self, images: int) -> Sequence[str]:
        """Refuse one that is larger than the queue; say which classes contrast alone can hardly draw together."""
        self.queue.check_batch(images)
        single = sum(count == 1 for count in self.class_counts)
        if not single:
            return ()
        return (f"{counted(single, 'class')} of one image, drawn to nothing but its other view and its centre",)

    def prepare(self, *batches: Batch) -> tuple[Batch, ...]:
        """Put the keys of the batch into the queue."""
        for batch in batches[:1]:
            self.queue.push(self.encoder(self.views_of(batch)[1]), batch.target)
        return batches

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of one batch, over all ranks."""
        (batch,) = batches
        features = whole_batch(self.features(self.views_of(batch)[0]).float())
        logits = cast("HeadedModel", self.model).get_classifier()(features)
        centre, sample = paco_loss(
            logits,
            unit(self.projection(features)),
            whole_batch(batch.target),
            self.queue,
            priors=self.priors,
            sample_weight=self.sample_weight,
            centre_weight=self.centre_weight,
            contrast_weight=self.contrast_weight,
            temperature=self.temperature,
        )
        return sum_parts(own_rows(logits), {"centres": centre, "samples": sample})

    def after_step(self) -> None:
        """Let the encoder follow."""
        self.encoder.follow(self.model, self.projection)
