"""BBN: two branches, one fed with images as they come, one with rare classes first, and a slow turn to the second.

A step takes an image x_c from a conventional sampler and x_r from a reversed one, p_k ∝ 1 / n_k. The network is shared
but for its last block, which each branch has of its own. With the features f_c and f_r of the two branches

    z = W 2 [α f_c ; (1 - α) f_r] + b
    L = α CE(z, y_c) + (1 - α) CE(z, y_r),    α = 1 - t²

where t is the share of the training that is done, by epochs, n_k the training images of class k, and [;] joins vectors.
So it learns a representation first and the rare classes later. At inference both branches see the same image and α is
1/2, so z = W [f_c ; f_r] + b.

The paper's network starts from fresh weights in both branches. Ours start as copies of the model's last block, so that
pretrained weights serve; what they are fed with tells them apart.

Reference: Zhou et al., "BBN: Bilateral-Branch Network with Cumulative Learning for Long-Tailed Visual Recognition",
CVPR 2020, sections 4.2 and 4.3.
"""

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.methods._experts import BranchedModel
from longtail.methods.base import METHODS, Method, MethodOutput, sum_parts
from longtail.models.split_stages import split_stages


class BilateralModel(BranchedModel):
    """A network with two last blocks; as a model it weighs them equally.

    Args:
        model: one that `split_stages` knows; its modules are taken over.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        stem, stages, self.pool, classifier = split_stages(model)
        *blocks, last = (block for stage in stages for block in stage)
        self.trunk = nn.Sequential(*stem, *blocks)
        self.conventional, self.rebalancing = last, copy.deepcopy(last)
        like = classifier.weight
        self.classifier = nn.Linear(
            2 * classifier.in_features, classifier.out_features, device=like.device, dtype=like.dtype
        )

    def branch(self, block: nn.Module, images: Tensor) -> Tensor:
        """The features (B, D) of images by one of the two branches."""
        features: Tensor = self.pool(block(self.trunk(images)))
        return features

    def forward_features(self, x: Tensor) -> Tensor:
        """Images to the features of both branches, (B, 2 D)."""
        shared = self.trunk(x)
        return torch.cat([self.pool(self.conventional(shared)), self.pool(self.rebalancing(shared))], dim=1)


@METHODS.register("bbn")
class BBN(Method):
    """Two samplers, two branches; see the module's docstring.

    Args:
        model: one that `split_stages` knows; replaced by a `BilateralModel` of its parts.
        class_counts: training images of each class.
        view: a name in `VIEWS`; the paper's own is "weak".
        sampler: a name in `SAMPLERS`, of the conventional branch.
        rebalancing_sampler: the same, of the re-balancing branch.

    Example:
        >>> from longtail.models import create_model
        >>> method = BBN(create_model("resnet8", 3), [500, 50, 5])
        >>> method.samplers
        ('instance', 'reverse')
    """

    model: BilateralModel
    passes = 2.4
    departures = ("both branches start from the same weights",)

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        view: str = "strong",
        sampler: str = "instance",
        rebalancing_sampler: str = "reverse",
    ) -> None:
        super().__init__(BilateralModel(model), class_counts, views=(view,), samplers=(sampler, rebalancing_sampler))
        self.view, self.sampler, self.rebalancing_sampler = view, sampler, rebalancing_sampler
        self.alpha = 1.0

    def set_progress(self, progress: float) -> None:
        """Turn from the conventional branch to the re-balancing one."""
        super().set_progress(progress)
        self.alpha = 1 - progress**2

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of a conventional and a re-balancing batch of the same size."""
        conventional, rebalancing = batches
        (images,), (rare_images,) = self.views_of(conventional), self.views_of(rebalancing)
        features = self.model.branch(self.model.conventional, images)
        rare_features = self.model.branch(self.model.rebalancing, rare_images)
        mixed = 2 * torch.cat([self.alpha * features, (1 - self.alpha) * rare_features], dim=1)
        logits = self.model.classifier(mixed)
        return sum_parts(
            logits,
            {
                "conventional": self.alpha * F.cross_entropy(logits, conventional.target),
                "rebalancing": (1 - self.alpha) * F.cross_entropy(logits, rebalancing.target),
            },
        )
