"""LADE: balanced softmax, and a regulariser that disentangles the logits from the label distribution of the source.

    L   = CE(z + log π, y) + α Σ_c π_c [ R_c + λ R_c² - mean_{i: y_i = c} z_c^i ]
    R_c = log( 1/B Σ_i e^(z_c^i) / (K π_c) )

with the logits z of B images, priors π of K classes, the weight α and the penalty λ. The bracket is minus the
Donsker-Varadhan bound on the divergence between the images of class c and all images, regularised by R_c²; where it is
tight, z_c is the log of a density ratio that does not depend on π. So plain logits serve for a balanced test set, and
z + log of the target's priors for any other one.

The regulariser looks at all images of a batch at once. On several ranks the sums over images are all-reduced; micro-
batches would change it, so they are refused. Of a class without an image in the batch the mean counts as 0, as in the
authors' code.

Reference: Hong et al., "Disentangling Label Distribution for Long-tailed Visual Recognition", CVPR 2021; α and λ are
those of the authors' command for CIFAR-100-LT.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail._errors import counted
from longtail.data.views import Batch
from longtail.losses import BalancedSoftmaxLoss
from longtail.methods._over_ranks import max_over_ranks, sum_over_ranks
from longtail.methods.base import METHODS, Method, MethodOutput, sum_parts


def density_ratio_regularizer(logits: Tensor, target: Tensor, priors: Tensor, *, penalty: float) -> Tensor:
    """Σ_c π_c [ R_c + λ R_c² - mean_{i: y_i = c} z_c^i ], over the images of all ranks.

    Args:
        logits: z, (B, K); computed in float32 or better.
        target: y, (B,).
        priors: π, (K,), above 0.
        penalty: λ.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    priors = priors.to(logits)
    own = F.one_hot(target, len(priors)).to(logits)
    shifted = logits - priors.log() - math.log(len(priors))
    largest = max_over_ranks(shifted.amax(0))
    sums = torch.stack([(own * logits).sum(0), own.sum(0), (shifted - largest).exp().sum(0)])
    of_class, images, exponentials = sum_over_ranks(sums)
    ratio = largest + exponentials.log() - images.sum().log()
    total: Tensor = (priors * (ratio + penalty * ratio**2 - of_class / images.clamp_min(1))).sum()
    return total


@METHODS.register("lade")
class LADE(Method):
    """Balanced softmax with a regulariser of the logits; see the module's docstring.

    Args:
        model: from images to logits; trained in place.
        class_counts: training images of each class, at least 1.
        regularizer_weight: α; 0 is balanced softmax.
        penalty: λ.
        view: a name in `VIEWS`; the authors' own is "weak".
        sampler: a name in `SAMPLERS`.

    Example:
        >>> from longtail.models import create_model
        >>> method = LADE(create_model("resnet8", 3), [500, 50, 5])
        >>> method.microbatches
        False
    """

    priors: Tensor
    microbatches = False
    passes = 1.0

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        regularizer_weight: float = 0.1,
        penalty: float = 0.01,
        view: str = "strong",
        sampler: str = "instance",
    ) -> None:
        for name, value in {"regularizer_weight": regularizer_weight, "penalty": penalty}.items():
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a finite number of zero or more, got {value}")
        super().__init__(model, class_counts, views=(view,), samplers=(sampler,))
        self.regularizer_weight, self.penalty, self.view, self.sampler = regularizer_weight, penalty, view, sampler
        self.criterion = BalancedSoftmaxLoss(self.class_counts)
        self.register_buffer("priors", torch.tensor(self.class_counts.priors), persistent=False)

    def check_batch(self, images: int) -> Sequence[str]:
        """Say of how many classes the regulariser sees no image in most batches."""
        missing = sum((1 - prior) ** images > 0.5 for prior in self.class_counts.priors)
        if not missing:
            return ()
        return (
            f"{counted(missing, 'class')} missing from most batches of {images}; a larger --batch-size serves better",
        )

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of one batch."""
        (batch,) = batches
        (images,) = self.views_of(batch)
        logits = self.model(images)
        regularizer = density_ratio_regularizer(logits, batch.target, self.priors, penalty=self.penalty)
        return sum_parts(
            logits,
            {
                "classification": self.criterion(logits, batch.target),
                "regularizer": self.regularizer_weight * regularizer,
            },
        )
