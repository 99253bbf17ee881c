"""Empirical risk minimisation: one view, one loss. The baseline, and the frame for any loss, sampler and mixing.

    L = Σ_i v_{y_i} loss(model(x_i), y_i) / Σ_i v_{y_i}

with images x, labels y and any name in `LOSSES`. Class weights v are 1 until `reweight_from`, and then those of
`class_weights` by effective number (deferred re-weighting, DRW). With `mixing` the images of a step are mixed first,
and the loss of each is that of its two labels, by their shares. The means are those of the whole batch of a step,
whatever its micro-batches and ranks: `_losses.py` has the equations.

References: Cao et al., NeurIPS 2019, algorithm 1 (DRW); those of the losses and mixings are with them.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from longtail.data.mixing import MIXINGS
from longtail.data.views import Batch
from longtail.losses import class_weights
from longtail.methods._classifiers import ClassifierKind, choose_classifier, make_cosine
from longtail.methods._losses import (
    batch_loss,
    build_loss,
    loss_arguments,
    mixed_batch,
    of_each_image,
    unmixed_batch,
    weigh_batch,
)
from longtail.methods.base import METHODS, Method, MethodOutput, sum_parts

# What a mixing gets from the method, not from its settings.
_GIVEN = {"images", "target", "generator", "class_counts", "patches", "patch_target"}


@METHODS.register("erm")
class ERM(Method):
    """One view, one loss.

    Args:
        model: from images to logits; trained in place.
        class_counts: training images of each class.
        loss: a name in `LOSSES`.
        loss_settings: keyword arguments of that loss, such as `{"strength": 1.5}`.
        view: a name in `VIEWS`: the view to train on; "strong" is what the paper's Baseline does.
        sampler: a name in `SAMPLERS`: "instance" shows each image once an epoch.
        mixing: a name in `MIXINGS`: "mixup", "cutmix", "remix", "unimix" or "cmo"; None for plain images.
        mixing_settings: keyword arguments of that mixing, such as `{"alpha": 1.0}`.
        mixing_probability: the share of the steps whose images are mixed.
        patches_from: a name in `SAMPLERS`, of the second batch of "cmo".
        reweight_from: the progress from which class weights are on: 0.8 in the paper, 0 for always, None for never.
        beta: β of these weights, see `class_weights`.
        classifier: "linear", the model's own, or "cosine"; None for what the loss takes.

    Example:
        >>> from longtail.models import create_model
        >>> method = ERM(create_model("resnet8", 3), [500, 50, 5], loss="balanced_softmax", mixing="cmo")
        >>> method.samplers
        ('instance', 'class_balanced')
    """

    class_weights: Tensor

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        loss: str = "cross_entropy",
        loss_settings: Mapping[str, Any] | None = None,
        view: str = "strong",
        sampler: str = "instance",
        mixing: str | None = None,
        mixing_settings: Mapping[str, Any] | None = None,
        mixing_probability: float = 1.0,
        patches_from: str = "class_balanced",
        reweight_from: float | None = None,
        beta: float = 0.9999,
        classifier: ClassifierKind | None = None,
    ) -> None:
        samplers = (sampler, patches_from) if mixing == "cmo" else (sampler,)
        super().__init__(model, class_counts, views=(view,), samplers=samplers)
        if not 0 < mixing_probability <= 1:
            raise ValueError(f"mixing_probability must be above 0 and at most 1, got {mixing_probability}")
        self.loss, self.view, self.sampler, self.patches_from = loss, view, sampler, patches_from
        self.criterion = build_loss(loss, self.class_counts, loss_settings)
        self.loss_settings = loss_arguments(self.criterion)
        of_each_image(self.criterion)
        self.mixing, self.mixing_probability = mixing, mixing_probability
        self.mixing_settings = _mixing_arguments(mixing, mixing_settings)
        _check_reweighting(reweight_from, loss, self.criterion)
        self.reweight_from, self.beta, self.reweight = reweight_from, beta, False
        weights = class_weights(self.criterion.class_counts, beta=beta)
        self.register_buffer("class_weights", weights, persistent=False)
        self.classifier = choose_classifier(classifier, self.criterion, loss)
        if self.classifier == "cosine":
            make_cosine(self.model, self.criterion.cosine_scale())
        self.set_progress(0.0)

    def prepare(self, *batches: Batch) -> tuple[Batch, ...]:
        """Mix the images, and weigh their labels; one batch is left of two."""
        given: dict[str, Any] = {}
        if self.mixing == "cmo":
            batch, other = batches
            (patches,) = self.views_of(other)
            given = {"patches": patches, "patch_target": other.target}
        else:
            (batch,) = batches
        if self.mixing in ("remix", "unimix"):
            given = {"class_counts": self.class_counts}
        if self.mixing is not None and torch.rand(()) < self.mixing_probability:
            (images,) = self.views_of(batch)
            mix, generator = MIXINGS[self.mixing], torch.default_generator
            batch = mixed_batch(batch, mix(images, batch.target, generator=generator, **given, **self.mixing_settings))
        elif self.mixing is not None:
            batch = unmixed_batch(batch)
        return (weigh_batch(batch, self.criterion, self._weights),)

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of one batch."""
        (batch,) = batches
        (images,) = self.views_of(batch)
        logits = self.model(images)
        taken = logits / (self.criterion.cosine_scale() or 1.0)  # a loss that takes cosines scales them itself
        return sum_parts(logits, {"classification": batch_loss(self.criterion, taken, batch, self._weights)})

    def set_progress(self, progress: float) -> None:
        """Turn the class weights on when it is time, and hand the position to the loss, which may have a schedule."""
        super().set_progress(progress)
        self.criterion.set_progress(progress)
        self.reweight = self.reweight_from is not None and self.reweight_from <= progress and self.reweight_from < 1

    @property
    def _weights(self) -> Tensor | None:
        return self.class_weights if self.reweight else None


def _mixing_arguments(mixing: str | None, settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """The resolved keyword arguments of a mixing."""
    if mixing is None:
        if settings:
            raise ValueError(f"mixing_settings must be empty without mixing, got {dict(settings)}")
        return {}
    known = [part for part in inspect.signature(MIXINGS[mixing]).parameters.values() if part.name not in _GIVEN]
    unknown = set(settings or {}) - {part.name for part in known}
    if unknown:
        names = ", ".join(part.name for part in known)
        raise ValueError(f"mixing_settings must be of {names} for {mixing!r}, got {min(unknown)!r}")
    return {part.name: part.default for part in known} | dict(settings or {})


def _check_reweighting(start: float | None, name: str, loss: nn.Module) -> None:
    if start is None:
        return
    if not 0 <= start <= 1:
        raise ValueError(f"reweight_from must be from 0 to 1, got {start} (a share of the training)")
    if name == "class_balanced" or hasattr(loss, "reweight_from"):
        own = "set loss_settings.reweight_from instead" if hasattr(loss, "reweight_from") else "leave one of them out"
        raise ValueError(f"reweight_from must be null for loss {name!r}, which has class weights of its own ({own})")
