"""Decoupled training: first the representation, by any method, then the classifier alone, re-balanced.

Stage 1, the first `representation_share` of the epochs, is the base method, whose own schedules run over this stage.
In stage 2 everything but the model's last layer is fixed, and that layer learns from

    L = Σ_i w_{y_i} loss(z_i, y_i) / Σ_i w_{y_i},    z = classifier(features)

with images drawn class-balanced (`resample`, RS) and w the `class_weights` (`reweight`, RW; otherwise 1). The paper's
table 3 has RS, RW and both, but does not say with which loss. The default is cross-entropy, as in Kang et al., since
re-sampling or weights do the balancing; RW is then Cui et al.'s loss. With `loss="balanced_softmax"`, or with RS and
RW at once, stage 2 balances twice.

Norm layers are fixed as well, and dropout in the fixed part is off; `norm_policy` says what becomes of the running
statistics, see `FixedPart`. Both stages have whole epochs: `plan` rounds `representation_share` up, but leaves stage 2
one. The learning-rate schedule starts again with the epoch from which the fixed part is fixed. Optimisers skip
parameters without a gradient, so neither weight decay nor momentum moves it.

Reference: Kang et al., "Decoupling Representation and Classifier for Long-Tailed Recognition", ICLR 2020 (cRT);
Cheng et al., MM 2022, table 3: 80 % of the epochs for the representation.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, Self, cast

import torch
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.losses import class_weights
from longtail.methods._classifiers import check_logits
from longtail.methods._losses import batch_loss, build_loss, loss_arguments, of_each_image, weigh_batch
from longtail.methods._norms import FixedPart, NormPolicy, reset_layer
from longtail.methods._whole_stages import whole_stages
from longtail.methods._wrapped import WrappedMethod
from longtail.methods.base import METHODS, HeadedModel, MethodOutput, check_headed, sum_parts


@METHODS.register("decoupled")
class Decoupled(WrappedMethod):
    """A base method for the representation, then the classifier alone; see the module's docstring.

    Args:
        model: from images to logits, with `get_classifier()` as timm's models have it; trained in place.
        class_counts: training images of each class.
        base: the method of stage 1, a name in `METHODS`.
        base_settings: its keyword arguments, such as `{"loss": "balanced_softmax"}`.
        representation_share: the share of stage 1, moved to whole epochs, at least one a stage; 0.8 is the paper's.
        resample: whether stage 2 draws its images class-balanced.
        reweight: whether stage 2 weighs its losses by class.
        loss: of stage 2, a name in `LOSSES`.
        loss_settings: keyword arguments of that loss.
        weighting: of `class_weights`, if `reweight`.
        beta: of `class_weights`, if `reweight`.
        norm_policy: "frozen", "shifted" or "reestimated"; see `FixedPart`.
        reset_classifier: whether stage 2 starts from a new classifier. The optimiser keeps its momentum of the old one.
        seed: of the new classifier, the same on each rank.

    Attributes:
        stage: 1 or 2, a buffer: what is done once, when stage 2 begins, is not done again on resuming.

    Example:
        >>> from longtail.models import create_model
        >>> method = Decoupled(create_model("resnet8", 3), [500, 50, 5], base_settings={"loss": "balanced_softmax"})
        >>> method.set_progress(0.8)
        >>> method.samplers
        ('class_balanced',)
    """

    stage: Tensor
    class_weights: Tensor

    skips_parameters = True

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        base: str = "erm",
        base_settings: Mapping[str, Any] | None = None,
        representation_share: float = 0.8,
        resample: bool = True,
        reweight: bool = False,
        loss: str = "cross_entropy",
        loss_settings: Mapping[str, Any] | None = None,
        weighting: Literal["inverse_frequency", "effective_number"] = "effective_number",
        beta: float = 0.9999,
        norm_policy: NormPolicy = "frozen",
        reset_classifier: bool = False,
        seed: int = 0,
    ) -> None:
        _check_settings(base, representation_share, reweight=reweight, loss=loss, settings=loss_settings)
        super().__init__(model, class_counts, base, base_settings)
        check_headed(self.model, "to be trained in two stages")
        self.representation_share = representation_share
        self.stages = self._scaled_stages()
        self.resample, self.reweight, self.weighting, self.beta = resample, reweight, weighting, beta
        self.criterion = build_loss(loss, self.class_counts, loss_settings)
        check_logits(self.criterion, loss)
        self.loss, self.loss_settings = loss, loss_arguments(self.criterion)
        of_each_image(self.criterion)
        weights = class_weights(self.class_counts, weighting=weighting if reweight else "none", beta=beta)
        self.register_buffer("class_weights", weights, persistent=False)
        self.norm_policy, self.reset_classifier, self.seed = norm_policy, reset_classifier, seed
        self.register_buffer("stage", torch.ones((), dtype=torch.long))
        self._fixed = FixedPart(self.model, cast("HeadedModel", self.model).get_classifier(), norm_policy)

    def plan(self, epochs: int) -> None:
        """Give each stage whole epochs."""
        _, share = whole_stages((0.0, self.representation_share), epochs)
        first = round(share * epochs)
        self.base_method.plan(first)
        self.representation_share = first / epochs
        self.stages = self._scaled_stages()

    def set_progress(self, progress: float) -> None:
        """Begin, or go on with, the stage of this position."""
        super().set_progress(progress)
        share = self.representation_share
        self.follows_base = progress < share  # what forward reads; the buffer may be on a device that one waits for
        if not self.follows_base:
            if self.stage == 1:
                self._begin_classifier_stage()
            self.samplers, self.lr_scale = ("class_balanced" if self.resample else "instance",), 1.0
            self.criterion.set_progress(_near((progress - share) / (1 - share)))
        else:
            self.base_method.set_progress(_near(progress / share))
            self.samplers, self.lr_scale = self.base_method.samplers, self.base_method.lr_scale
        self.stage.fill_(1 if self.follows_base else 2)
        self._fixed.set_momenta(fixed=not self.follows_base)
        self.train(self.training)

    def prepare(self, *batches: Batch) -> tuple[Batch, ...]:
        """The base's; in stage 2 the labels are weighed."""
        if self.follows_base:
            return super().prepare(*batches)
        (batch,) = batches
        return (weigh_batch(batch, self.criterion, self.class_weights),)

    def forward(self, *batches: Batch) -> MethodOutput:
        """The base's loss, or the classifier's."""
        if self.follows_base:
            output: MethodOutput = self.base_method(*batches)
            return output
        (batch,) = batches
        with torch.no_grad():
            features = self.features(self.views_of(batch)[-1])
        logits = cast("HeadedModel", self.model).get_classifier()(features)
        return sum_parts(logits, {"classification": batch_loss(self.criterion, logits, batch, self.class_weights)})

    def train(self, mode: bool = True) -> Self:
        """Set the mode, as in torch; in stage 2 the fixed part stays in eval, its batch norms as `norm_policy` says."""
        super().train(mode)
        if mode and not self.follows_base:
            self._fixed.set_mode()
        return self

    def _scaled_stages(self) -> tuple[float, ...]:
        share = self.representation_share
        return (*(_near(start * share) for start in self.base_method.stages), share)

    @torch.no_grad()
    def _begin_classifier_stage(self) -> None:
        for parameter in self.parameters():
            parameter.grad = None  # an optimiser would go on moving what has a gradient of zeros
        self._fixed.begin()
        if self.reset_classifier:
            reset_layer(cast("HeadedModel", self.model).get_classifier(), self.seed)


def _near(share: float) -> float:
    """The fraction of whole epochs that a share is but for rounding, so that nothing starts an epoch late."""
    return float(Fraction(share).limit_denominator(1_000_000))


def _check_settings(base: str, share: float, *, reweight: bool, loss: str, settings: Mapping[str, Any] | None) -> None:
    if base == "decoupled":
        raise ValueError("base must be another method than 'decoupled' itself")
    if not 0 < share < 1:
        raise ValueError(f"representation_share must be more than 0 and less than 1, got {share}")
    if reweight and loss == "class_balanced":
        raise ValueError("reweight must be false with loss 'class_balanced', which has class weights of its own")
    if reweight and (settings or {}).get("reduction", "mean") != "mean":
        raise ValueError("loss_settings must not set reduction with reweight: the mean is the weighted one")
