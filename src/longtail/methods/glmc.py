"""GLMC: the same pairs of images mixed by mixup and by CutMix, consistency between both, and weights that grow.

A step mixes a first view of each image with that of its partner by mixup, and a second view with the same partner by
CutMix. With the features h_g and h_l of the two mixed images

    L = α [ mix(z_g) + mix(z_l) ] + (1 - α) [ mix_w(v_g) + mix_w(v_l) ] + γ [ -cos(u_g, sg(p_l)) - cos(u_l, sg(p_g)) ]
    mix(z)   = mean_i λ_i (-log softmax(z_i)_{y_i}) + (1 - λ_i) (-log softmax(z_i)_{y_j})
    mix_w(v) = the same, each label's term times w_k ∝ n_k^(-κ), which has mean 1
    α        = 1 - t²

with the share t of the training that is done, the label y_j of the partner, the share λ_i of the first image, n_k
training images of class k, and the stop-gradient sg. z are the logits of a conventional classifier, which training
alone uses; v those of the model's own, which is deployed; p = projection(h) and u = prediction(p) are linear maps.

Both mixings have the same λ ~ U(0, 1) and the same partners, so that the two images show the same pair. Ours differs
from the authors' code in two points: the labels of CutMix are weighed by the area that its box has within the image,
and partners are a permutation of the batch of a rank instead of a second batch, which the authors draw like the first
on CIFAR.

Reference: Du et al., "Global and Local Mixture Consistency Cumulative Learning for Long-tailed Visual Recognitions",
CVPR 2023, section 3; γ, κ and the sizes of the maps are those of the authors' code for CIFAR.
"""

import math
from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.data.mixing.base import draw_partners, draw_share
from longtail.data.mixing.cutmix import cut_and_paste
from longtail.data.views import Batch
from longtail.losses import negative_cosine_loss
from longtail.methods.base import METHODS, HeadedModel, Method, MethodOutput, check_headed, sum_parts

PROJECTION = 128


@METHODS.register("glmc")
class GLMC(Method):
    """Two mixed views, their consistency, and class weights that grow; see the module's docstring.

    Args:
        model: from images to logits, with a linear classifier that `get_classifier()` gives; trained in place.
        class_counts: training images of each class, at least 1.
        consistency_weight: γ.
        weight_power: κ; 0 for no class weights.
        view: a name in `VIEWS`; each image is seen twice through it. The authors' own is "weak".
        sampler: a name in `SAMPLERS`.

    Example:
        >>> from longtail.models import create_model
        >>> method = GLMC(create_model("resnet8", 3), [500, 50, 5], view="weak")
        >>> method.views
        ('weak', 'weak')
    """

    weights: Tensor
    passes = 2.0
    departures = (
        "the labels of CutMix are weighed by the area of the clipped box",
        "partners come from the same batch",
    )

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        consistency_weight: float = 4.0,
        weight_power: float = 1.2,
        view: str = "strong",
        sampler: str = "instance",
    ) -> None:
        for name, value in {"consistency_weight": consistency_weight, "weight_power": weight_power}.items():
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a finite number of zero or more, got {value}")
        check_headed(model, "for a second classifier on its features")
        classifier = cast("HeadedModel", model).get_classifier()
        if not isinstance(classifier, nn.Linear):
            raise ValueError(
                f"model must have a linear classifier for a second one beside it, got {type(classifier).__name__}"
            )
        super().__init__(model, class_counts, views=(view, view), samplers=(sampler,))
        if min(self.class_counts) < 1:
            raise ValueError(f"class_counts must be at least 1 for every class, got {min(self.class_counts)}")
        self.consistency_weight, self.weight_power = consistency_weight, weight_power
        self.view, self.sampler, self.alpha = view, sampler, 1.0
        like = classifier.weight
        self.conventional = nn.Linear(classifier.in_features, classifier.out_features).to(like)
        self.projection = nn.Linear(classifier.in_features, PROJECTION).to(like)
        self.prediction = nn.Linear(PROJECTION, PROJECTION).to(like)
        powers = torch.tensor(list(self.class_counts), dtype=torch.float64) ** -weight_power
        self.register_buffer("weights", (len(powers) * powers / powers.sum()).float(), persistent=False)

    def set_progress(self, progress: float) -> None:
        """Turn from the conventional classifier to the re-weighted one."""
        super().set_progress(progress)
        self.alpha = 1 - progress**2

    def prepare(self, *batches: Batch) -> tuple[Batch, ...]:
        """Mix the first view by mixup and the second by CutMix; the partners' labels and the shares go along."""
        (batch,) = batches
        first, second = self.views_of(batch)
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        partners, share = draw_partners(batch.target, generator), draw_share(1.0, generator)
        partner = batch.target[partners]
        whole = torch.lerp(first[partners], first, share)
        local = cut_and_paste(second, batch.target, second[partners], partner, share=share, generator=generator)
        extra = {
            "partner": partner,
            "global_share": torch.full_like(local.weight, share),
            "local_share": local.weight,
        }
        return (batch._replace(views=(whole, local.images), extra={**batch.extra, **extra}),)

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of one batch, as `prepare` leaves it."""
        (batch,) = batches
        views = self.views_of(batch)
        shares = batch.extra["global_share"], batch.extra["local_share"]
        features = [self.features(images) for images in views]
        classifier = cast("HeadedModel", self.model).get_classifier()
        logits = [classifier(each) for each in features]
        ones = torch.ones_like(self.weights)
        plain = [self._mixed(self.conventional(each), batch, s, ones) for each, s in zip(features, shares, strict=True)]
        weighted = [self._mixed(each, batch, s, self.weights) for each, s in zip(logits, shares, strict=True)]
        projected = [self.projection(each) for each in features]
        predicted = [self.prediction(each) for each in projected]
        consistency = negative_cosine_loss(predicted[0], projected[1]) + negative_cosine_loss(
            predicted[1], projected[0]
        )
        return sum_parts(
            logits[0],
            {
                "conventional": self.alpha * (plain[0] + plain[1]),
                "rebalanced": (1 - self.alpha) * (weighted[0] + weighted[1]),
                "consistency": self.consistency_weight * consistency,
            },
        )

    def _mixed(self, logits: Tensor, batch: Batch, share: Tensor, weights: Tensor) -> Tensor:
        own, partner = (
            weights[target] * F.cross_entropy(logits.float(), target, reduction="none")
            for target in (batch.target, batch.extra["partner"])
        )
        return torch.lerp(partner, own, share).mean()
