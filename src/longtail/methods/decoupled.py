"""Decoupled training: first the representation, by any method, then the classifier alone, re-balanced.

Stage 1, the first `representation_share` of the epochs, is the base method, whose own schedules run over this stage.
In stage 2 everything but the model's last layer is fixed, and that layer learns from

    L = Σ_i w_{y_i} loss(z_i, y_i) / Σ_i w_{y_i},    z = classifier(features)

with images drawn class-balanced (`resample`, RS) and w the `class_weights` (`reweight`, RW; otherwise 1). The paper's
table 3 has RS, RW and both, but does not say with which loss. The default is the usual reading: cross-entropy
in stage 2 (as in Kang et al.; RW is then Cui et al.'s loss), since re-sampling or weights do the balancing. With
`loss="balanced_softmax"` they come on top of it, which balances twice.

"Fixed" has to be said of the statistics of the batch norms as well, plain or compound. `norm_policy` is one of

- "frozen": the running statistics of stage 1 normalise, and stay bit for bit. The features of an image are constants.
- "shifted": batches normalise as in training, and the running statistics go on from those of stage 1 with the layers'
  momentum (shifted batch norm, Zhong et al., CVPR 2021).
- "reestimated": batches normalise as in training, and the running statistics become the plain average over the batches
  of stage 2. Those of stage 1 are forgotten with the first batch; a mixture's serve for its responsibilities before.

Affine parameters are fixed under each, and dropout in the fixed part is off. Under the last two a class-balanced
sampler moves the statistics towards those of balanced data.

The stage begins with the first epoch that starts at or after `representation_share`: take a share that is a whole
number of epochs, and at least one epoch for each stage. Optimisers skip parameters without a gradient, so neither
weight decay nor momentum moves the fixed part; DistributedDataParallel needs `find_unused_parameters=True`.

Reference: Kang et al., "Decoupling Representation and Classifier for Long-Tailed Recognition", ICLR 2020 (cRT);
Cheng et al., MM 2022, table 3: 80 % of the epochs for the representation.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, Self, cast

import torch
from torch import Tensor, nn

from longtail.losses import class_weights
from longtail.methods._losses import build_loss
from longtail.methods._norms import StatisticsLayer, statistics_layers
from longtail.methods.base import METHODS, Batch, Method, MethodOutput, check_progress

NormPolicy = Literal["frozen", "shifted", "reestimated"]


class HeadedModel(Protocol):
    """What stage 2 asks of a model; timm's and ours have it."""

    def forward_features(self, x: Tensor) -> Tensor:
        """Images to features."""

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Features to logits, or to what the classifier takes."""

    def get_classifier(self) -> nn.Module:
        """The last layer."""


@METHODS.register("decoupled")
class Decoupled(Method):
    """A base method for the representation, then the classifier alone; see the module's docstring.

    Args:
        model: from images to logits, with `get_classifier()` as timm's models have it; trained in place.
        class_counts: training images of each class.
        base: the method of stage 1, a name in `METHODS`.
        base_settings: its keyword arguments, such as `{"loss": "balanced_softmax"}`.
        representation_share: the share of the epochs that stage 1 takes; 0.8 is the paper's.
        resample: whether stage 2 draws its images class-balanced.
        reweight: whether stage 2 weighs its losses by class.
        loss: of stage 2, a name in `LOSSES`.
        loss_settings: keyword arguments of that loss.
        weighting: of `class_weights`, if `reweight`.
        beta: of `class_weights`, if `reweight`.
        norm_policy: what becomes of the batch norms' statistics in stage 2; "frozen", "shifted" or "reestimated".
        reset_classifier: whether stage 2 starts from a new classifier. The optimiser keeps its momentum of the old one.
        seed: of the new classifier, the same on each rank.

    Attributes:
        stage: 1 or 2, a buffer: what is done once, when stage 2 begins, is not done again on resuming.

    Example:
        >>> from longtail.models import create_model
        >>> method = Decoupled(create_model("resnet8", 3), [500, 50, 5], base_settings={"loss": "balanced_softmax"})
        >>> method.set_progress(0.8)
        >>> method.sampler
        'class_balanced'
    """

    stage: Tensor

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
        _check_settings(base, representation_share, norm_policy, reweight=reweight, loss=loss, settings=loss_settings)
        built = METHODS[base](model, class_counts, **(base_settings or {}))
        super().__init__(built.model, class_counts, views=built.views, sampler=built.sampler)
        # One owner: the base sees the model without registering it, so each weight is in the state once.
        del built.model
        object.__setattr__(built, "model", self.model)
        self.base = built
        self.departures = built.departures
        self.representation_share = representation_share
        self.stages = (*(share * representation_share for share in self.base.stages), representation_share)
        self.resample = resample
        self.reweight = reweight
        self.loss = build_loss(loss, self.class_counts, loss_settings)
        if reweight:
            class_weights(self.class_counts, weighting=weighting, beta=beta)  # refuses bad settings now
            self.loss.reduction = "none"
        self.weighting = weighting
        self.beta = beta
        self.norm_policy: NormPolicy = norm_policy
        self.reset_classifier = reset_classifier
        self.seed = seed
        self.register_buffer("stage", torch.ones((), dtype=torch.long))
        self._classifying = False  # what forward reads; the buffer may be on a device that one waits for
        self._momenta = {path: layer.momentum for path, layer in statistics_layers(self.model).items()}
        _check_model(self.model)

    def forward(self, batch: Batch) -> MethodOutput:
        """One training step up to the loss: the base's, or the classifier's."""
        if not self._classifying:
            output: MethodOutput = self.base(batch)
            return output
        images = self.views_of(batch)[-1]
        model = cast("HeadedModel", self.model)
        with torch.no_grad():
            features = model.forward_head(model.forward_features(images), pre_logits=True)
        logits = model.get_classifier()(features)
        loss = self.loss(logits, batch.target)
        if self.reweight:
            weights = class_weights(self.loss.class_counts, weighting=self.weighting, beta=self.beta)[batch.target]
            loss = (weights * loss).sum() / weights.sum()
        return MethodOutput(loss, logits.detach(), {"classification": loss.detach()})

    def check_epochs(self, epochs: int) -> None:
        """Each stage needs an epoch."""
        first = math.ceil(self.representation_share * epochs)
        if not 1 <= first < epochs:
            raise ValueError(
                f"epochs must leave at least one for each stage, "
                f"got {epochs} with representation_share={self.representation_share}"
            )
        self.base.check_epochs(first)

    def set_progress(self, progress: float) -> None:
        """Begin, or go on with, the stage of this position."""
        super().set_progress(progress)
        self._classifying = progress >= self.representation_share
        if self._classifying:
            if self.stage == 1:
                self._begin_classifier_stage()
            self.sampler = "class_balanced" if self.resample else "instance"
            self.loss.set_progress(self.schedule_position(progress))
        else:
            self.base.set_progress(progress / self.representation_share)
            self.sampler = self.base.sampler
        self.stage.fill_(2 if self._classifying else 1)
        averaging = self._classifying and self.norm_policy == "reestimated"
        for path, layer in statistics_layers(self.model).items():
            layer.momentum = None if averaging else self._momenta[path]
        self.train(self.training)

    def schedule_position(self, progress: float) -> float:
        """The base's in stage 1; in stage 2 the share of that stage."""
        check_progress(progress)
        share = self.representation_share
        if progress < share:
            return self.base.schedule_position(progress / share)
        return (progress - share) / (1 - share)

    def train(self, mode: bool = True) -> Self:
        """Set the mode, as in torch; in stage 2 the fixed part stays in eval, its batch norms as `norm_policy` says."""
        super().train(mode)
        if mode and self._classifying:
            learning = set(cast("HeadedModel", self.model).get_classifier().modules())
            for module in self.model.modules():
                if module not in learning:
                    module.training = self.norm_policy != "frozen" and isinstance(module, StatisticsLayer)
        return self

    @torch.no_grad()
    def _begin_classifier_stage(self) -> None:
        for parameter in self.model.parameters():
            parameter.grad = None  # an optimiser would go on moving what has a gradient of zeros
        if self.norm_policy == "reestimated":
            for layer in statistics_layers(self.model).values():
                if layer.num_batches_tracked is not None:
                    layer.num_batches_tracked.zero_()
        if self.reset_classifier:
            _reset(cast("HeadedModel", self.model).get_classifier(), self.seed)


def _reset(classifier: nn.Module, seed: int) -> None:
    """Start a layer anew, in place, since the optimiser knows its parameters; the same on any device and rank."""
    fresh = copy.deepcopy(classifier).cpu()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        for module in fresh.modules():
            if callable(reset := getattr(module, "reset_parameters", None)):
                reset()
    classifier.load_state_dict(fresh.state_dict())


def _check_model(model: nn.Module) -> None:
    missing = [name for name in ("forward_features", "forward_head", "get_classifier") if not hasattr(model, name)]
    if missing:
        raise ValueError(
            f"model must have {' and '.join(missing)} to be trained in two stages, got {type(model).__name__} "
            "(timm's models and those of longtail.models do)"
        )
    classifier = cast("HeadedModel", model).get_classifier()
    if not isinstance(classifier, nn.Module) or not list(classifier.parameters()):
        raise ValueError(
            f"model must have one classifier with parameters to be trained in two stages, got {classifier} "
            f"from {type(model).__name__}.get_classifier()"
        )


def _check_settings(
    base: str, share: float, norm_policy: str, *, reweight: bool, loss: str, settings: Mapping[str, Any] | None
) -> None:
    if base == "decoupled":
        raise ValueError("base must be another method than 'decoupled' itself")
    if not 0 < share < 1:
        raise ValueError(f"representation_share must be more than 0 and less than 1, got {share}")
    if norm_policy not in ("frozen", "shifted", "reestimated"):
        raise ValueError(f"norm_policy must be 'frozen', 'shifted' or 'reestimated', got {norm_policy!r}")
    if reweight and loss == "class_balanced":
        raise ValueError("reweight must be false with loss 'class_balanced', which has class weights of its own")
    if reweight and "reduction" in (settings or {}):
        raise ValueError("loss_settings must not set reduction with reweight: the mean is the weighted one")
