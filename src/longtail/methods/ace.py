"""ACE: experts on one trunk, the first for all classes and each further one for rarer ones alone.

Expert j = 1 ... k has target classes C_j: all for the first, and the rarest (k - j + 1) / k of the classes for the
j-th. It learns from the images of its classes, and to be silent about the others:

    L   = Σ_j mean_{i: y_i ∈ C_j} [ CE(z_j^i, y_i) + β Σ_{c ∉ C_j} (z_jc^i)² ]
    z_c = mean_{j: c ∈ C_j} z_jc ‖w_1‖² / ‖w_j‖²            the prediction

with the logits z_j of expert j and ‖w_j‖ the mean norm of the vectors that its classifier has for its classes.

- The trunk gets a gradient from the first expert alone: the others must not bend it to the few images that they see.
- Expert j has the learning rate times N_j / N, the share of the training images that are of its classes: an expert for
  rare classes sees the same images often, and would overfit at the full rate.
- Sums over images go over all ranks, so that the mean is that of the whole batch.

Not checked against the authors' code, which was not to be had. This is built from descriptions of the paper by others.
They agree on the overlapping classes, the silence, the scaled learning rates and the trunk's one gradient. They leave
open how many blocks an expert has (here: the last stage), over which rows the norm is taken, and the shares of the
classes; the number of epochs in the recipes has one source.

Reference: Cai et al., "ACE: Ally Complementary Experts for Solving Long-Tailed Recognition in One-Shot", ICCV 2021.
"""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.methods._experts import ExpertEnsemble, ExpertHeads
from longtail.methods._over_ranks import sum_over_ranks
from longtail.methods.base import METHODS, Method, MethodOutput, sum_parts


class ComplementaryHeads(ExpertHeads):
    """A linear classifier for each expert; of each class, the mean of the re-scaled logits of those responsible for it.

    Args:
        heads: linear.
        responsible: bool, (k, K): whether class c is a target class of expert j.
    """

    responsible: Tensor

    def __init__(self, heads: ExpertHeads, responsible: Tensor) -> None:
        super().__init__(heads)
        self.register_buffer("responsible", responsible.to(heads[0].get_parameter("weight").device))

    def aggregate(self, logits: Tensor) -> Tensor:
        """The logits of each expert, (k, B, K), to the prediction, (B, K)."""
        own = self.responsible.to(logits.dtype)
        norms = torch.stack([head.get_parameter("weight").norm(dim=1) for head in self])
        norm = (own * norms).sum(1) / own.sum(1)
        scaled = logits * (norm[0] / norm.clamp_min(1e-12))[:, None, None] ** 2
        return (own[:, None] * scaled).sum(0) / own.sum(0)

    def forward(self, features: Tensor) -> Tensor:
        """The prediction, (B, K)."""
        return self.aggregate(self.of_each(features))


@METHODS.register("ace")
class ACE(Method):
    """Experts for ever rarer classes; see the module's docstring.

    Args:
        model: one that `split_stages` knows; replaced by an `ExpertEnsemble` of its parts.
        class_counts: training images of each class.
        experts: k, at most the number of classes.
        complementary_weight: β.
        view: a name in `VIEWS`.
        sampler: a name in `SAMPLERS`.

    Example:
        >>> from longtail.models import create_model
        >>> method = ACE(create_model("resnet8", 3), [500, 50, 5])
        >>> method.model.classifier.responsible.int()
        tensor([[1, 1, 1],
                [0, 1, 1],
                [0, 0, 1]], dtype=torch.int32)
    """

    model: ExpertEnsemble
    passes = 1.7
    departures = (
        "built from descriptions of the paper, without the authors' code",
        "target classes are equal shares of the classes, from the rarest up",
        "experts start from the same last stage",
    )

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        experts: int = 3,
        complementary_weight: float = 1.0,
        view: str = "strong",
        sampler: str = "instance",
    ) -> None:
        if not 0 <= complementary_weight < math.inf:
            raise ValueError(
                f"complementary_weight must be a finite number of zero or more, got {complementary_weight}"
            )
        if experts > len(class_counts):
            raise ValueError(f"experts must be at most the number of classes, {len(class_counts)}, got {experts}")
        ensemble = ExpertEnsemble(model, experts, stages=1)
        super().__init__(ensemble, class_counts, views=(view,), samplers=(sampler,))
        self.experts, self.complementary_weight, self.view, self.sampler = experts, complementary_weight, view, sampler
        ensemble.classifier = ComplementaryHeads(ensemble.classifier, target_classes(self.class_counts, experts))

    @property
    def _heads(self) -> ComplementaryHeads:
        return cast("ComplementaryHeads", self.model.classifier)

    def prepare(self, *batches: Batch) -> tuple[Batch, ...]:
        """Weigh each image for each expert by 1 / its images in the whole batch, times this rank's share of it."""
        (batch,) = batches
        own = self._heads.responsible.T[batch.target].float()
        images, ranks = sum_over_ranks(own.sum(0)), sum_over_ranks(own.new_ones(()))
        weight = own * len(own) * ranks / images.clamp_min(1)
        return (batch._replace(extra={**batch.extra, "weight": weight}),)

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of one batch, as `prepare` leaves it."""
        (batch,) = batches
        (images,) = self.views_of(batch)
        shared = self.model.trunk(images)
        inputs = [shared, *[shared.detach()] * (self.experts - 1)]
        features = [expert(x) for expert, x in zip(self.model.experts, inputs, strict=True)]
        logits = self._heads.of_each(torch.cat(features, dim=1)).float()
        losses, silent = logits.new_zeros(()), logits.new_zeros(())
        for each, own, weight in zip(logits, self._heads.responsible, batch.extra["weight"].T, strict=True):
            losses = losses + (weight * F.cross_entropy(each, batch.target, reduction="none")).mean()
            silent = silent + (weight * (each**2 * ~own).sum(1)).mean()
        return sum_parts(
            self._heads.aggregate(logits),
            {"classification": losses, "complementary": self.complementary_weight * silent},
        )

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The trunk and the first expert at the full learning rate, the others at that of their share of the images."""
        counts = torch.tensor(list(self.class_counts), dtype=torch.float64)
        shares = (self._heads.responsible.cpu() * counts).sum(1) / counts.sum()
        groups = [
            {"params": [*expert.parameters(), *head.parameters()], "lr_scale": share}
            for expert, head, share in zip(self.model.experts, self._heads, shares.tolist(), strict=True)
        ]
        groups[0]["params"] = [*self.model.trunk.parameters(), *groups[0]["params"]]
        for group in groups:
            group["params"] = [parameter for parameter in group["params"] if parameter.requires_grad]
        return groups


def target_classes(class_counts: Sequence[int], experts: int) -> Tensor:
    """Whether class c is one of expert j's, bool (k, K): all for the first, then ever fewer of the rarest.

    Args:
        class_counts: training images of each class; ties go by the order of the classes.
        experts: k.
    """
    order = sorted(range(len(class_counts)), key=lambda c: (-class_counts[c], c))
    responsible = torch.zeros(experts, len(class_counts), dtype=torch.bool)
    for j in range(experts):
        responsible[j, order[j * len(order) // experts :]] = True
    return responsible
