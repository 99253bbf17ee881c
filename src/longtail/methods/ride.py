"""RIDE: several experts on one trunk, each with a margin loss, pushed apart and averaged.

With the logits z_i of expert i = 1 ... k and z̄ their mean, which is the prediction,

    L = Σ_i [ LDAM(z_i, y) - λ T̄² KL( softmax(z̄ / T) ‖ softmax(z_i / T) ) ]

- Each expert has a copy of the network's last two stages and a cosine classifier, z = s cos(h, w) with features h.
- LDAM subtracts the margin s Δ_y from the label's logit; from `reweight_from` on it weighs classes (`ldam_loss`).
- The second term rewards an expert for differing from the mean, which is a constant in it. Until `reweight_from` T = 1.
  Then T_k ∝ r K π_k + 1 - r with max T = 1, for K classes of priors π_k, so that experts may differ more on rare
  classes; r = `temperature_reweight`, T̄ is the mean of T_k.

The paper's experts have fewer channels, so that three cost little more than one network. Ours keep the model's width,
so that pretrained weights serve: three experts on a CIFAR ResNet take 2.3 times its multiplications. They start from
the same weights, and their classifiers, which are new, drive them apart. The paper's second stage, which learns how
many experts an image needs, and its self-distillation are left out.

Reference: Wang et al., "Long-tailed Recognition by Routing Diverse Distribution-Aware Experts", ICLR 2021, sections 3.1
and 3.2; s, λ, r and T are those of its code.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.losses import LDAMLoss
from longtail.methods._experts import ExpertEnsemble
from longtail.methods._losses import batch_loss, weigh_batch
from longtail.methods.base import METHODS, Method, MethodOutput, sum_parts


def diversity(logits: Tensor, temperature: Tensor) -> Tensor:
    """T̄² Σ_i KL( softmax(z̄ / T) ‖ softmax(z_i / T) ), averaged over the batch; z̄ is a constant in it.

    Args:
        logits: z, (k, B, K).
        temperature: T, (K,).
    """
    mean = F.softmax(logits.detach().mean(0) / temperature, dim=1)
    experts = F.log_softmax(logits / temperature, dim=2)
    return temperature.mean() ** 2 * F.kl_div(experts, mean.expand_as(experts), reduction="sum") / logits.shape[1]


@METHODS.register("ride")
class RIDE(Method):
    """Experts with margins, pushed apart; see the module's docstring.

    Args:
        model: one that `split_stages` knows; replaced by an `ExpertEnsemble` of its parts.
        class_counts: training images of each class.
        experts: k.
        diversity_weight: λ.
        temperature_reweight: r, at least 0 and less than 1; at 0 all classes have T = 1.
        max_margin: the margin of the smallest class, see `ldam_loss`.
        scale: s.
        beta: β of the class weights, see `class_weights`.
        reweight_from: the share of the training after which class weights and temperatures set in; 1 for never.
        view: a name in `VIEWS`; the paper's own is "weak".
        sampler: a name in `SAMPLERS`.

    Example:
        >>> from longtail.models import create_model
        >>> method = RIDE(create_model("resnet8", 3), [500, 50, 5])
        >>> len(method.model.experts)
        3
    """

    model: ExpertEnsemble
    temperature: Tensor
    passes = 2.3
    departures = (
        "experts have the full width of the network",
        "experts start from the same weights",
        "no self-distillation and no routing of images",
    )

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        experts: int = 3,
        diversity_weight: float = 0.45,
        temperature_reweight: float = 0.05,
        max_margin: float = 0.5,
        scale: float = 30.0,
        beta: float = 0.9999,
        reweight_from: float = 0.8,
        view: str = "strong",
        sampler: str = "instance",
    ) -> None:
        if not 0 <= diversity_weight < math.inf:
            raise ValueError(f"diversity_weight must be a finite number of zero or more, got {diversity_weight}")
        if not 0 <= temperature_reweight < 1:
            raise ValueError(f"temperature_reweight must be at least 0 and less than 1, got {temperature_reweight}")
        super().__init__(ExpertEnsemble(model, experts, scale=scale), class_counts, views=(view,), samplers=(sampler,))
        self.experts, self.diversity_weight, self.temperature_reweight = experts, diversity_weight, temperature_reweight
        self.max_margin, self.scale, self.beta, self.reweight_from = max_margin, scale, beta, reweight_from
        self.view, self.sampler = view, sampler
        self.criterion = LDAMLoss(
            self.class_counts,
            max_margin=max_margin,
            scale=scale,
            beta=beta,
            reweight_from=reweight_from,
            reduction="none",
        )
        priors = torch.tensor(self.class_counts.priors)
        temperature = temperature_reweight * len(priors) * priors + 1 - temperature_reweight
        self.register_buffer("temperature", temperature / temperature.max(), persistent=False)

    def set_progress(self, progress: float) -> None:
        """Hand the position to the loss, whose class weights and the temperatures set in together."""
        super().set_progress(progress)
        self.criterion.set_progress(progress)

    def prepare(self, *batches: Batch) -> tuple[Batch, ...]:
        """Weigh the labels, once the class weights are on."""
        (batch,) = batches
        return (weigh_batch(batch, self.criterion),)

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of one batch."""
        (batch,) = batches
        (images,) = self.views_of(batch)
        logits = self.model.classifier.of_each(self.model.forward_features(images))
        temperature = self.temperature if self.criterion.reweight else torch.ones_like(self.temperature)
        margins = [batch_loss(self.criterion, each / self.scale, batch) for each in logits]  # the loss takes cosines
        return sum_parts(
            logits.mean(0),
            {
                "classification": torch.stack(margins).sum(),
                "diversity": -self.diversity_weight * diversity(logits, temperature),
            },
        )
