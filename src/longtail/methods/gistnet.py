"""GistNet: the shape of the frequent classes, as a few displacement vectors, serves the rare ones too.

A class is not one direction but several: its weights w_k, and w_k displaced by vectors d_1 ... d_S that all classes
share. With features h,

    z_k(w, d) = τ max_s cos(h, w_k + d_s),    d_0 = 0
    L = CE(z(w^r, d), y) over a batch of images as they come
      + λ CE(z(w^c, sg(d)), y) over a class-balanced batch

sg stops the gradient: d learns from images as they come, most of them of frequent classes, while w^c learns from
balanced ones. The first half of the training is without d; then the displacements start. w^c, d and τ^c are deployed.

Both batches pass the network at once, so batch norms see them together. A step costs twice that of `erm`.

Where ours differs: displacements start at small random vectors. Those of the authors' code start at zero, where each
w_k + d_s ties with w_k, and a maximum that takes the first of equals never teaches them. τ starts at 16, as in other
cosine classifiers, not at a random number; it is learned, one for w^c and one for w^r. Classes are drawn one image at a
time, not four. The learning rate falls by half a cosine.

Reference: Liu et al., "GistNet: a Geometric Structure Transfer Network for Long-Tailed Recognition", ICCV 2021, section
3; S, λ and the stages are those of its code for ImageNet-LT. It has no setting for CIFAR.
"""

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.methods._checks import check_positive, linear_classifier
from longtail.methods._whole_stages import check_starts, whole_stages
from longtail.methods.base import METHODS, HeadedModel, Method, MethodOutput, sum_parts

# Of the displacements at their start, beside the weights: large enough to part, too small to change the prediction.
_SPREAD = 0.1


def gist_logits(features: Tensor, weight: Tensor, displacements: Tensor, scale: Tensor) -> Tensor:
    """z, (B, K); see the module's docstring for the equation.

    Args:
        features: h, (B, D).
        weight: w, (K, D).
        displacements: d_1 ... d_S, (S, D).
        scale: τ.
    """
    shifts = torch.cat([torch.zeros_like(displacements[:1]), displacements])
    places = F.normalize(weight[:, None] + shifts, dim=2).flatten(0, 1)
    cosines = F.linear(F.normalize(features), places).view(len(features), len(weight), len(shifts))
    return scale * cosines.amax(2)


class GistClassifier(nn.Module):
    """The deployed classifier: z(w^c, d).

    Args:
        like: the linear layer that it replaces, for sizes, device and dtype.
        displacements: S.
        scale: τ at the start.
    """

    def __init__(self, like: nn.Linear, displacements: int, scale: float) -> None:
        super().__init__()
        self.in_features, self.num_classes = like.in_features, like.out_features
        self.weight = nn.Parameter(torch.randn_like(like.weight))
        self.displacements = nn.Parameter(like.weight.new_zeros(displacements, like.in_features))
        self.scale = nn.Parameter(like.weight.new_tensor(scale))

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, D) to logits (B, K)."""
        return gist_logits(features, self.weight, self.displacements, self.scale)

    def extra_repr(self) -> str:
        """The sizes."""
        return f"{self.in_features}, {self.num_classes}, displacements={len(self.displacements)}"


@METHODS.register("gistnet")
class GistNet(Method):
    """Two samplers, two classifiers, shared displacements; see the module's docstring.

    Args:
        model: from images to logits; its linear classifier is replaced by a `GistClassifier`.
        class_counts: training images of each class.
        displacements: S.
        balanced_weight: λ, positive.
        scale: τ at the start, positive.
        structure_from: the share of the training after which displacements learn, moved to a whole epoch.
        seed: of their start, the same on each rank.
        view: a name in `VIEWS`.
        sampler: a name in `SAMPLERS`, of the batch that d learns from.
        balanced_sampler: the same, of the batch that w^c learns from.

    Example:
        >>> from longtail.models import create_model
        >>> method = GistNet(create_model("resnet8", 3), [500, 50, 5])
        >>> method.samplers
        ('instance', 'class_balanced')
    """

    passes = 2.0
    skips_parameters = True
    departures = ("displacements start at random", "the scale starts at 16")

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        displacements: int = 4,
        balanced_weight: float = 0.5,
        scale: float = 16.0,
        structure_from: float = 0.5,
        seed: int = 0,
        view: str = "strong",
        sampler: str = "instance",
        balanced_sampler: str = "class_balanced",
    ) -> None:
        if displacements < 1:
            raise ValueError(f"displacements must be at least 1, got {displacements}")
        check_positive(balanced_weight=balanced_weight, scale=scale)
        check_starts(structure_from=structure_from)
        old = linear_classifier(model, "to be given displacements")
        super().__init__(model, class_counts, views=(view,), samplers=(sampler, balanced_sampler))
        self.displacements, self.balanced_weight, self.scale, self.seed = displacements, balanced_weight, scale, seed
        self.structure_from, self.view, self.sampler = structure_from, view, sampler
        self.balanced_sampler, self.stages, self._structured = balanced_sampler, (0.0, structure_from), False
        path = next(path for path, module in model.named_modules() if module is old)
        model.set_submodule(path, GistClassifier(old, displacements, scale))
        self.random_weight = nn.Parameter(torch.randn_like(old.weight))
        self.random_scale = nn.Parameter(old.weight.new_tensor(scale))

    def plan(self, epochs: int) -> None:
        """Give each stage whole epochs."""
        self.stages = whole_stages((0.0, self.structure_from), epochs)
        self.structure_from = self.stages[1]

    def set_progress(self, progress: float) -> None:
        """Start the displacements, once, or go on with them."""
        super().set_progress(progress)
        self._structured = progress >= self.structure_from
        classifier = self._classifier
        if self._structured and not classifier.displacements.any():
            draw = torch.Generator().manual_seed(self.seed)
            start = torch.randn(classifier.displacements.shape, generator=draw)
            with torch.no_grad():
                classifier.displacements.copy_(_SPREAD * start.to(classifier.weight) * classifier.weight.std())

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of a batch as images come and of a balanced one."""
        plain, balanced = batches
        (images,), (balanced_images,) = self.views_of(plain), self.views_of(balanced)
        features = self.features(torch.cat([images, balanced_images])).float()
        number, classifier = len(plain.target), self._classifier
        shifts = classifier.displacements if self._structured else torch.zeros_like(classifier.displacements)
        logits = gist_logits(features[:number], self.random_weight, shifts, self.random_scale)
        own = gist_logits(features[number:], classifier.weight, shifts.detach(), classifier.scale)
        return sum_parts(
            logits.float(),
            {
                "classification": F.cross_entropy(logits.float(), plain.target),
                "balanced": self.balanced_weight * F.cross_entropy(own.float(), balanced.target),
            },
        )

    @property
    def _classifier(self) -> GistClassifier:
        return cast("GistClassifier", cast("HeadedModel", self.model).get_classifier())
