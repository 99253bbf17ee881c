"""SSD: a network teaches one like it, once its own decisions are balanced.

Three stages in one training, with features h, logits z = W h + b and the label y of an image:

1. L = CE(z, y) + λ C,  C = -log( e^(q·k/t) / (e^(q·k/t) + Σ_j e^(q·k_j/t)) ): a network learns from labels and by
   contrast, with the projection q of the image, its key k by a momentum encoder of another view, and the keys k_j of
   images with other labels, in the batch and in a queue.
2. L = CE(f ⊙ z, y): everything is fixed but a scale f_c of each class, which learns from class-balanced batches.
3. L = CE(z', y) + T² KL( softmax(f ⊙ t / T) ‖ softmax(z / T) ): a new network, from the weights that the first one
   started from, learns from labels by one head, z', and by another, z, what the first one says: its logits t, scaled.

The head of the soft labels, z, is deployed. The stages stand in one method because the third needs nothing but what the
first two leave: no second command, and one schedule. Until stage 3 the deployed model is the first network.

`teacher` holds the start until stage 3, and the first network from then on, so that a new network starts from the same
weights, pretrained or not. The optimiser keeps its momentum of the old one; the learning rate starts again.

Where ours differs: keys of the present batch are in the queue, which starts empty and is smaller; the second view has
no changes of colour; stage 2 is not repeated on the new network. For its accuracy on few epochs see docs/methods.md.

Reference: Li et al., "Self Supervision to Distillation for Long-Tailed Visual Recognition", ICCV 2021, section 3; the
stages, t and T are those of its code for ImageNet-LT: 135, 5 and 135 epochs. It has no setting for CIFAR.
"""

import copy
from collections.abc import Sequence
from typing import Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.methods._checks import check_positive, linear_classifier
from longtail.methods._momentum_encoder import KeyQueue, MomentumEncoder, build_projection, unit
from longtail.methods._whole_stages import check_starts, whole_stages
from longtail.methods.base import METHODS, HeadedModel, Method, MethodOutput, sum_parts


def masked_contrast(
    projections: Tensor, keys: Tensor, target: Tensor, queue: KeyQueue, *, temperature: float
) -> Tensor:
    """C, averaged over the batch; see the module's docstring.

    Args:
        projections: q, (B, d), of length 1.
        keys: k, (B, d), of length 1.
        target: y, (B,).
        queue: the keys of other images; those with the label of an image are no contrast to it.
        temperature: t.
    """
    positive = (projections * keys).sum(1, keepdim=True)
    hidden = (queue.labels < 0) | (queue.labels == target[:, None])
    others = (projections @ queue.keys.T).masked_fill(hidden, -torch.inf)
    return F.cross_entropy(torch.cat([positive, others], dim=1) / temperature, torch.zeros_like(target))


@METHODS.register("ssd")
class SSD(Method):
    """Labels and contrast, then balance, then distillation; see the module's docstring.

    Args:
        model: from images to logits, with a linear classifier; trained in place.
        class_counts: training images of each class.
        contrast_weight: λ, positive.
        contrast_temperature: t, positive.
        temperature: T, positive.
        balance_from: the share of the training after which scales learn, moved to a whole epoch.
        distill_from: the same, after which the new network learns.
        balance_lr_scale: multiplies the learning rate in stage 2.
        projection_size: d.
        queue_size: the keys that are kept, those of the present batch included.
        momentum: what is kept of the encoder at each step.
        view: a name in `VIEWS`, of what is trained on.
        key_view: the same, of what the encoder sees.

    Attributes:
        distils: whether stage 3 has begun, a buffer: networks change places once.

    Example:
        >>> from longtail.models import create_model
        >>> method = SSD(create_model("resnet8", 3), [500, 50, 5])
        >>> [round(start, 2) for start in method.stages]
        [0.0, 0.49, 0.51]
    """

    distils: Tensor

    passes = 1.33
    skips_parameters = True
    departures = ("the second view has no colour changes", "the new network is not balanced again")

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        contrast_weight: float = 1.0,
        contrast_temperature: float = 0.07,
        temperature: float = 2.0,
        balance_from: float = 135 / 275,
        distill_from: float = 140 / 275,
        balance_lr_scale: float = 2.0,
        projection_size: int = 128,
        queue_size: int = 4096,
        momentum: float = 0.999,
        view: str = "strong",
        key_view: str = "weak",
    ) -> None:
        check_positive(contrast_weight=contrast_weight, contrast_temperature=contrast_temperature)
        check_positive(temperature=temperature, balance_lr_scale=balance_lr_scale)
        check_starts(balance_from=balance_from, distill_from=distill_from)
        classifier = linear_classifier(model, "to teach one like it")
        super().__init__(model, class_counts, views=(view, key_view))
        self.contrast_weight, self.contrast_temperature = contrast_weight, contrast_temperature
        self.balance_from, self.distill_from, self.balance_lr_scale = balance_from, distill_from, balance_lr_scale
        self.temperature, self.projection_size, self.queue_size = temperature, projection_size, queue_size
        self.momentum, self.view, self.key_view = momentum, view, key_view
        self.stages, self._stage = (0.0, balance_from, distill_from), 1
        self.projection = build_projection(model, projection_size, "to learn by contrast")
        self.encoder = MomentumEncoder(model, self.projection, momentum)
        self.queue = KeyQueue(queue_size, projection_size)
        self.scales = nn.Parameter(torch.ones(len(self.class_counts)))
        self.hard_head = copy.deepcopy(classifier)
        self.teacher = copy.deepcopy(model).requires_grad_(False)
        self.register_buffer("distils", torch.zeros((), dtype=torch.bool))
        self.train(self.training)

    def plan(self, epochs: int) -> None:
        """Give each stage whole epochs."""
        self.stages = whole_stages((0.0, self.balance_from, self.distill_from), epochs)
        _, self.balance_from, self.distill_from = self.stages

    def check_batch(self, images: int) -> Sequence[str]:
        """Refuse one that is larger than the queue."""
        self.queue.check_batch(images)
        return ()

    def set_progress(self, progress: float) -> None:
        """Begin, or go on with, the stage of this position."""
        super().set_progress(progress)
        self._stage = sum(progress >= start for start in self.stages)
        self.samplers = ("class_balanced" if self._stage == 2 else "instance",)
        self.lr_scale = self.balance_lr_scale if self._stage == 2 else 1.0
        if self._stage == 3 and not self.distils:
            start = copy.deepcopy(self.teacher.state_dict())
            self.teacher.load_state_dict(self.model.state_dict())
            self.model.load_state_dict(start)
            self.distils.fill_(value=True)
        self.train(self.training)

    def prepare(self, *batches: Batch) -> tuple[Batch, ...]:
        """In stage 1, the keys of the images go along, and into the queue."""
        if self._stage != 1 or len(batches) != 1:
            return batches
        (batch,) = batches
        keys = self.encoder(self.views_of(batch)[1])
        self.queue.push(keys, batch.target)
        return (batch._replace(extra={**batch.extra, "key": keys}),)

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of the stage."""
        (batch,) = batches
        images, _ = self.views_of(batch)
        classifier = cast("HeadedModel", self.model).get_classifier()
        with torch.set_grad_enabled(self._stage != 2 and torch.is_grad_enabled()):
            features = self.features(images)
            logits = classifier(features).float()
        if self._stage == 1:
            q, k, t = unit(self.projection(features)), batch.extra["key"], self.contrast_temperature
            contrast = masked_contrast(q, k, batch.target, self.queue, temperature=t)
            parts = {
                "classification": F.cross_entropy(logits, batch.target),
                "contrast": self.contrast_weight * contrast,
            }
            return sum_parts(logits, parts)
        if self._stage == 2:
            logits = self.scales * logits
            return sum_parts(logits, {"classification": F.cross_entropy(logits, batch.target)})
        with torch.no_grad():
            soft = F.softmax(self.scales * self.teacher(images).float() / self.temperature, dim=1)
        student = F.log_softmax(logits / self.temperature, dim=1)
        parts = {
            "classification": F.cross_entropy(self.hard_head(features).float(), batch.target),
            "distillation": self.temperature**2 * F.kl_div(student, soft, reduction="batchmean"),
        }
        return sum_parts(logits, parts)

    def after_step(self) -> None:
        """Let the encoder follow, in stage 1."""
        if self._stage == 1:
            self.encoder.follow(self.model, self.projection)

    def train(self, mode: bool = True) -> Self:
        """Set the mode, as in torch; what is fixed stays in eval: the teacher, and in stage 2 the network."""
        super().train(mode)
        self.teacher.eval()
        if self._stage == 2:
            self.model.eval()
        return self
