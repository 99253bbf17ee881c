"""Compound batch normalization with its class-split path and dual-path learning; each row of the paper's ablation.

    L = cls(c) + a cls(s) - b ( cos(c, sg(s')) + cos(s, sg(c')) )

with the logits c and s of the strong view through the compound and the split path, c' and s' those of the weak
view, a classification loss cls (balanced softmax), the stop-gradient sg, a = `split_loss_weight` and
b = `similarity_weight`. Inference takes the compound path alone. See `longtail.nn` for the two paths.

Three switches give the rows of the paper's table 2. Passes run in the order in which they stand; those in
brackets under `no_grad`. A compound pass updates μ, σ² and τ of all components once, a split pass μ and σ² of the
components whose class group is in the batch, τ never.

| Row              | compound | split | dual_path | Passes                  | Loss                         | Updates |
|------------------|----------|-------|-----------|-------------------------|------------------------------|---------|
| Baseline         |          |       |           | plain batch norm        | cls                          | 1       |
| +SBN             |          | x     |           | s                       | cls(s)                       | 1       |
| +CBN             | x        |       |           | c                       | cls(c)                       | 1       |
| +CBN+SBN         | x        | x     |           | c, s                    | cls(c) + a cls(s), a = 1     | 2 or 1  |
| +CBN+SBN+DPL     | x        | x     | x         | [c'], [s'], c, s        | L above, a = 0               | 4 or 2  |

The first number of updates is that of `update_on_split=True`, the second that of `update_on_split=False`, with which
split passes normalise as ever but leave the buffers alone. All rows take the strong view, the last one the weak view
too; `update_on_weak=False` does the same for the weak passes. Passes see what those before them have left in the
buffers: the order is that of the paper's algorithm of one epoch. n updates of momentum m in a step weigh about as
much as one of momentum 1 - (1 - m)^n.

Where the paper is silent: its loss has no classification term on the split path, but the row +CBN+SBN needs one; the
row +SBN infers through the compound path with τ = 1/M, which no pass has moved. A reading settles the rest: "paper" by
the paper's letter, "measured" by what our comparisons led to (docs/evidence.md). With the latter components start
apart, at random, responsibilities are constants in the backward pass, and split passes leave the statistics alone. By
the paper's letter components start equal and are parted by the split path alone, so in the row +CBN they would stay
equal, and the layer plain batch norm, for ever: that row starts them at random.

Reference: Cheng et al., "Compound Batch Normalization for Long-tailed Image Classification", MM 2022, section
"Dual-Path Learning" and table 2.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.losses import negative_cosine_loss
from longtail.methods._losses import build_loss, loss_arguments
from longtail.methods._norms import convert_norms
from longtail.methods.base import METHODS, Method, MethodOutput
from longtail.nn import (
    CompoundBatchNorm,
    class_groups,
    fit_components,
    frozen_statistics,
    split_path,
)
from longtail.nn.fit import has_equal_components

Reading = Literal["measured", "paper"]
# What each reading settles; an argument that is given goes before it. `convert_norms` takes the momentum None as "each
# batch norm's own". The paper's λ = 0.1 weighs the old statistics, so its momentum in torch's sense is 0.9.
READINGS: dict[str, dict[str, Any]] = {
    "measured": {
        "group_scheme": "interleaved",
        "component_init": "random",
        "start": 0.0,
        "statistics": "batch",
        "momentum": None,
        "detach_responsibilities": True,
        "update_on_split": False,
        "scale_affine": True,
    },
    "paper": {
        "group_scheme": "contiguous",
        "component_init": "equal",  # at random if there is no split path to part them
        "start": 0.0,
        "statistics": "running",
        "momentum": 0.9,
        "detach_responsibilities": False,
        "update_on_split": True,
        "scale_affine": False,
    },
}
# What the paper has of the arguments that no reading settles, and those that mean nothing without a split path and with
# one component: a departure is what makes a difference.
_PAPERS = {"temperature": 1.0, "layers": None, "split_statistics": None, "update_on_weak": True}
_OF_THE_SPLIT_PATH = ("group_scheme", "update_on_split", "split_statistics")
_OF_A_MIXTURE = ("group_scheme", "component_init", "detach_responsibilities", "scale_affine", "temperature")


@METHODS.register("compound_bn")
class CompoundBN(Method):
    """Every row of the paper's ablation by three switches; see the module's docstring.

    Args:
        model: from images to logits; its batch norms are converted and it is trained in place.
        class_counts: training images of each class.
        compound: whether to train through the compound path.
        split: whether to train through the split path.
        dual_path: whether to draw the two paths together across two views; needs both.
        components: M, the number of Gaussians.
        loss: the classification loss, a name in `LOSSES`.
        loss_settings: keyword arguments of that loss.
        split_loss_weight: a, the weight of the split path's classification loss where both paths are trained. None: 1
            without `dual_path`, 0 with it. At 0 without `dual_path` the split pass only moves the statistics.
        similarity_weight: b, the weight of the two cosines; the paper gives none, so 1.
        reading: what the arguments whose default is "the reading's" are: "measured" takes those that our
            comparisons led to (docs/evidence.md), "paper" follows the paper's letter.
        group_scheme: how classes are cut into M groups, "contiguous" or "interleaved"; see `class_groups`. None: the
            reading's.
        update_on_weak: whether the passes of the weak view update the statistics.
        update_on_split: whether the split passes do. They normalise by their batch either way. None: the reading's.
        scale_affine: of the layers: whether gradients of the M affine sets count M times. None: the reading's.
        layers: convert only the batch norms at or under these paths, such as `["stage3"]`; all if None.
        start: the share of the training before which the split path is not taken and fitted components are not
            fitted. Until then equal components stay equal, so the network computes what it would with batch norm.
            None: 0.5 if components are fitted, otherwise 0.
        statistics: of the layers, see `CompoundBatchNorm`; "batch" or "running". None: the reading's.
        split_statistics: of the layers, the same for the split path; None takes `statistics`.
        momentum: of the layers. None: the reading's, which is each batch norm's own or 0.9.
        temperature: of the layers; a number or "channels".
        detach_responsibilities: of the layers. None: the reading's.
        component_init: of the layers, "equal" or "random"; or "fitted": equal until `start`, then fitted to the
            features, with affine sets that keep what the network computes, to those of the class groups if there is a
            split path, otherwise as clusters; see `fit_components`. None: the reading's.
        sampler: how images are drawn.

    Example:
        >>> from longtail.models import create_model
        >>> method = CompoundBN(create_model("resnet8", 3), [500, 50, 5], components=3)
        >>> method.views
        ('weak', 'strong')
    """

    groups: Tensor

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        compound: bool = True,
        split: bool = True,
        dual_path: bool = True,
        components: int = 4,
        loss: str = "balanced_softmax",
        loss_settings: Mapping[str, Any] | None = None,
        split_loss_weight: float | None = None,
        similarity_weight: float = 1.0,
        reading: Reading = "measured",
        group_scheme: Literal["contiguous", "interleaved"] | None = None,
        update_on_weak: bool = True,
        update_on_split: bool | None = None,
        scale_affine: bool | None = None,
        layers: Sequence[str] | None = None,
        start: float | None = None,
        statistics: Literal["batch", "running"] | None = None,
        split_statistics: Literal["batch", "running"] | None = None,
        momentum: float | None = None,
        temperature: float | Literal["channels"] = 1.0,
        detach_responsibilities: bool | None = None,
        component_init: Literal["equal", "random", "fitted"] | None = None,
        sampler: str = "instance",
    ) -> None:
        super().__init__(
            model, class_counts, views=("weak", "strong") if dual_path else ("strong",), samplers=(sampler,)
        )
        _check_switches(compound, split, dual_path)
        _check_weights(split_loss_weight, similarity_weight, both=compound and split, dual_path=dual_path)
        if split and not compound:
            if update_on_split is False:
                raise ValueError("update_on_split=False needs compound, or no pass would leave statistics to infer by")
            update_on_split = True
        settled = _settle(
            reading,
            split,
            group_scheme=group_scheme,
            component_init=component_init,
            start=0.5 if start is None and component_init == "fitted" else start,
            statistics=statistics,
            momentum=momentum,
            detach_responsibilities=detach_responsibilities,
            update_on_split=update_on_split,
            scale_affine=scale_affine,
        )
        self.compound = compound
        self.split = split
        self.dual_path = dual_path
        self.split_loss_weight = float(not dual_path) if split_loss_weight is None else split_loss_weight
        self.similarity_weight = similarity_weight
        self.update_on_weak = update_on_weak
        self.update_on_split: bool = settled["update_on_split"]
        self.start: float = settled["start"]
        _check_start(self.start, split, settled["component_init"])
        self._splitting = split and self.start == 0
        self._to_fit = settled["component_init"] == "fitted" and (compound or split) and components > 1
        self._fitting = self.start == 0
        self.criterion = build_loss(loss, self.class_counts, loss_settings)
        self.loss, self.loss_settings = loss, loss_arguments(self.criterion)
        self.components, self.reading, self.layers, self.sampler = components, reading, layers, sampler
        self.split_statistics, self.temperature = split_statistics, temperature
        for name, value in settled.items():
            setattr(self, name, value)
        groups = class_groups(len(self.class_counts), components, settled["group_scheme"])
        self.register_buffer("groups", groups, persistent=False)
        if compound or split:
            chosen = settled | {
                "temperature": temperature,
                "layers": layers,
                "split_statistics": split_statistics,
                "update_on_weak": update_on_weak or not dual_path,
                "split_loss_weight": self.split_loss_weight,
            }
            void = (() if split else _OF_THE_SPLIT_PATH) + (() if components > 1 else _OF_A_MIXTURE)
            paper = _read("paper", split) | _PAPERS | {"split_loss_weight": float(not dual_path)}
            self.departures = _departures(chosen, paper, void)
            self.stages = (0.0, self.start) if self.start else (0.0,)
            self.model = convert_norms(
                model,
                components,
                layers=layers,
                momentum=settled["momentum"],
                statistics=settled["statistics"],
                split_statistics=split_statistics,
                temperature=temperature,
                detach_responsibilities=settled["detach_responsibilities"],
                scale_affine=settled["scale_affine"],
                # One Gaussian is batch norm, and starts as such.
                component_init="random" if settled["component_init"] == "random" and components > 1 else "equal",
            )

    def forward(self, *batches: Batch) -> MethodOutput:
        """One training step up to the loss."""
        (batch,) = batches
        *weak, strong = self.views_of(batch)
        target = batch.target
        groups = self.groups[target]
        if self._to_fit and self._fitting:
            self._fit(strong, groups if self.split else None)
        if not (self._splitting and self.compound):
            logits = self._through_split(strong, groups) if self._splitting else self.model(strong)
            return _output(logits, {"classification": self.criterion(logits, target)})

        goal, split_goal = self._goals(weak[0], groups) if self.dual_path else (None, None)
        logits = self.model(strong)
        parts = {"classification": self.criterion(logits, target)}
        with nullcontext() if self.dual_path or self.split_loss_weight else torch.no_grad():
            split_logits = self._through_split(strong, groups)
        if self.split_loss_weight:
            parts["split_classification"] = self.split_loss_weight * self.criterion(split_logits, target)
        if goal is not None and split_goal is not None:
            similarity = negative_cosine_loss(logits, split_goal) + negative_cosine_loss(split_logits, goal)
            parts["similarity"] = self.similarity_weight * similarity
        return _output(logits, parts)

    def set_progress(self, progress: float) -> None:
        """Take the split path from `start` on, and hand the position to the loss."""
        super().set_progress(progress)
        self._splitting = self.split and progress >= self.start
        self._fitting = progress >= self.start
        self.criterion.set_progress(progress)

    def _fit(self, images: Tensor, groups: Tensor | None) -> None:
        """Fit the components, unless they have been before a resume: then they are apart."""
        norms = [module for module in self.model.modules() if isinstance(module, CompoundBatchNorm)]
        if all(has_equal_components(norm) for norm in norms):
            fit_components(self.model, images, groups)
        self._to_fit = False

    def _through_split(self, images: Tensor, groups: Tensor) -> Tensor:
        still = nullcontext() if self.update_on_split else frozen_statistics(self.model)
        with split_path(self.model, groups), still:
            logits: Tensor = self.model(images)
        return logits

    @torch.no_grad()
    def _goals(self, images: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
        """The weak view's logits through the compound and the split path, as constants."""
        with nullcontext() if self.update_on_weak else frozen_statistics(self.model):
            return self.model(images), self._through_split(images, groups)


def _output(logits: Tensor, parts: Mapping[str, Tensor]) -> MethodOutput:
    loss = torch.stack(list(parts.values())).sum()
    return MethodOutput(loss, logits.detach(), {name: part.detach() for name, part in parts.items()})


def _settle(reading: str, split: bool, **given: Any) -> dict[str, Any]:
    """What is given, and the reading's where nothing is."""
    if reading not in READINGS:
        raise ValueError(f"reading must be one of {', '.join(READINGS)}, got {reading!r}")
    return _read(reading, split) | {name: value for name, value in given.items() if value is not None}


def _read(reading: str, split: bool) -> dict[str, Any]:
    return READINGS[reading] | ({} if split else {"component_init": "random"})


def _departures(chosen: Mapping[str, Any], paper: Mapping[str, Any], void: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        f"{name} is {_said(name, value)}, the paper's {_said(name, paper[name])}"
        for name, value in chosen.items()
        if value != paper[name] and name not in void
    )


def _said(name: str, value: object) -> str:
    unset = {"momentum": "each batch norm's own", "layers": "all", "split_statistics": "those of the compound path"}
    return unset[name] if value is None else str(value).lower()


def _check_switches(compound: bool, split: bool, dual_path: bool) -> None:
    if dual_path and not (compound and split):
        raise ValueError(
            f"dual_path needs compound and split, got compound={compound} and split={split} (turn dual_path off)"
        )


def _check_weights(split_loss_weight: float | None, similarity_weight: float, *, both: bool, dual_path: bool) -> None:
    if split_loss_weight is not None and not both:
        raise ValueError(
            "split_loss_weight weighs the split path beside the compound one, so it needs compound and split, "
            f"got {split_loss_weight} without both (leave it out)"
        )
    if split_loss_weight is not None and not 0 <= split_loss_weight < math.inf:
        raise ValueError(f"split_loss_weight must be a finite number of zero or more, got {split_loss_weight}")
    if dual_path and not 0 < similarity_weight < math.inf:
        raise ValueError(
            f"similarity_weight must be positive and finite, got {similarity_weight} (for none turn dual_path off)"
        )


def _check_start(start: float, split: bool, component_init: str) -> None:
    if not 0 <= start < 1:
        raise ValueError(f"start must be at least 0 and less than 1, got {start}")
    if start and component_init != "fitted" and not (split and component_init == "equal"):
        raise ValueError(
            "start defers the split path of equal components, or a fit, so it needs split and component_init 'equal', "
            f"or 'fitted', got start={start}, split={split} and component_init={component_init!r} (leave start out)"
        )
