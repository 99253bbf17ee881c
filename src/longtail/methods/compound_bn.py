"""Compound batch normalization with its class-split path and dual-path learning; each row of the paper's ablation.

    L = cls(c) + a cls(s) - b ( cos(c, sg(s')) + cos(s, sg(c')) )

with the logits c and s of the strong view through the compound and the split path, c' and s' those of the weak
view, a classification loss cls (balanced softmax), the stop-gradient sg, a = `split_loss_weight` and
b = `similarity_weight`. Inference takes the compound path alone. See `longtail.nn` for the two paths.

`row` is a row of the paper's table 2. Passes run in the order in which they stand; those in brackets under `no_grad`.
A compound pass updates μ, σ² and τ of all components once; a split pass μ and σ² of the components whose class group is
in the batch, or nothing, as the reading has it, and τ never.

| `row`         | Passes           | Loss                     | Updates with `update_on_split`, and without |
|---------------|------------------|--------------------------|---------------------------------------------|
| `baseline`    | plain batch norm | cls                      | 1                                           |
| `sbn`         | s                | cls(s)                   | 1                                           |
| `cbn`         | c                | cls(c)                   | 1                                           |
| `cbn_sbn`     | c, s             | cls(c) + a cls(s), a = 1 | 2, 1                                        |
| `cbn_sbn_dpl` | [c'], [s'], c, s | L above, a = 0           | 4, 2                                        |

All rows take the strong view, the last one the weak view too. Passes see what those before them have left in the
buffers: the order is that of the paper's algorithm of one epoch. n updates of momentum m in a step weigh about as
much as one of momentum 1 - (1 - m)^n.

Where the paper is silent: its loss has no classification term on the split path, but the row `cbn_sbn` needs one; the
row `sbn` uses the compound path at inference with τ = 1/M, which no pass has moved, and always updates on its split
passes. `reading` settles the rest; see `longtail.nn.readings`. Where a reading starts components equal, the split path
alone parts them. In the row `cbn` they would stay equal for ever, and the layer batch norm: there they start at random.

On trained weights components start equal. Random ones would compute what the batch norms did in eval, but not in
training: each normalises the points it gets to mean 0 and variance 1, which removes the differences between components
that the next layer has learnt from. Equal ones also train as batch norm does. The reading `measured` keeps their
statistics equal for ever: the split path then only separates their affine parameters, and the network that is deployed
is one with plain batch norms (`fold_batch_norm`). `update_on_split` separates the statistics as well.

Reference: Cheng et al., "Compound Batch Normalization for Long-tailed Image Classification", MM 2022, section
"Dual-Path Learning" and table 2.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.evaluation.mixture_record import pack_layer
from longtail.losses import negative_cosine_loss
from longtail.methods._classifiers import check_logits
from longtail.methods._losses import build_loss, loss_arguments
from longtail.methods._mixture_use import describe_mixture, mixture_row
from longtail.methods._norms import convert_norms
from longtail.methods._row_reading import ROW_PATHS, Start, row_departures, row_reading
from longtail.methods.base import METHODS, Method, MethodOutput, sum_parts
from longtail.nn import class_groups, frozen_statistics, split_path


@METHODS.register("compound_bn")
class CompoundBN(Method):
    """Every row of the paper's ablation; see the module's docstring.

    Args:
        model: from images to logits; its batch norms are converted and it is trained in place.
        class_counts: training images of each class.
        row: what of the method is used: "baseline", "sbn", "cbn", "cbn_sbn" or "cbn_sbn_dpl".
        components: M, the number of Gaussians.
        reading: a name in `READINGS`: "measured" is what our comparisons led to (docs/evidence.md), "appendix" and
            "text" follow the paper's letter.
        loss: the classification loss, a name in `LOSSES`.
        loss_settings: keyword arguments of that loss.
        similarity_weight: b, the weight of the two cosines; the paper gives none, so 1.
        split_loss_weight: a, the weight of the split path's classification loss where both paths are trained. None is
            1 in the row "cbn_sbn" and 0 in "cbn_sbn_dpl". At 0 in "cbn_sbn" the split pass only moves the statistics.
        layers: convert only the batch norms at or under these paths, such as `["stage3"]`; all if None.
        start: how components start: the reading's `component_init` by a shorter name. "auto" is "equal" if the batch
            norms of `model` have the statistics of a training, else what the reading and the row say.
        momentum: of the layers. Defaults to the reading's, which for "measured" is each batch norm's own. The paper's
            λ = 0.1 is 0.1 if it means torch's momentum and 0.9 if it is taken literally.
        reading_settings: fields of `Reading` to change, such as `{"group_scheme": "contiguous"}`.
        sampler: a name in `SAMPLERS`.

    Example:
        >>> from longtail.models import create_model
        >>> method = CompoundBN(create_model("resnet8", 3), [500, 50, 5], components=3)
        >>> method.views
        ('weak', 'strong')
    """

    groups: Tensor
    passes = 3.0

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        row: str = "cbn_sbn_dpl",
        components: int = 4,
        reading: str = "measured",
        loss: str = "balanced_softmax",
        loss_settings: Mapping[str, Any] | None = None,
        similarity_weight: float = 1.0,
        split_loss_weight: float | None = None,
        layers: Sequence[str] | None = None,
        start: Start = "auto",
        momentum: float | None = None,
        reading_settings: Mapping[str, Any] | None = None,
        sampler: str = "instance",
    ) -> None:
        if row not in ROW_PATHS:
            raise ValueError(f"row must be one of {', '.join(ROW_PATHS)}, got {row!r}")
        dual_path = row == "cbn_sbn_dpl"
        super().__init__(
            model, class_counts, views=("weak", "strong") if dual_path else ("strong",), samplers=(sampler,)
        )
        _check_weights(row, split_loss_weight, similarity_weight)
        if split_loss_weight is None and len(ROW_PATHS[row]) == 2:
            split_loss_weight = float(not dual_path)
        settled = row_reading(model, reading, row, momentum=momentum, start=start, changes=reading_settings or {})
        self.row, self.components, self.reading, self.sampler = row, components, reading, sampler
        self.loss = loss
        self.criterion = build_loss(loss, self.class_counts, loss_settings)
        check_logits(self.criterion, loss)
        self.loss_settings = loss_arguments(self.criterion)
        self.similarity_weight, self.split_loss_weight = similarity_weight, split_loss_weight
        self.layers = None if layers is None else list(layers)
        self.momentum = settled.momentum
        self.start: Start = settled.component_init
        self.reading_settings = {
            name: value for name, value in dataclasses.asdict(settled).items() if name != "momentum"
        }
        groups = class_groups(len(self.class_counts), components, settled.group_scheme)
        self.register_buffer("groups", groups, persistent=False)
        if ROW_PATHS[row]:
            self.departures = row_departures(settled, row, components, split_loss_weight, self.layers)
            self.model = convert_norms(model, components, layers=layers, reading=settled)

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of one batch."""
        (batch,) = batches
        *weak, strong = self.views_of(batch)
        target = batch.target
        groups = self.groups[target]
        if len(ROW_PATHS[self.row]) < 2:
            logits = self._through_split(strong, groups) if self.row == "sbn" else self.model(strong)
            return sum_parts(logits, {"classification": self.criterion(logits, target)})

        with torch.no_grad():
            goals = [(self.model(view), self._through_split(view, groups)) for view in weak]
        logits = self.model(strong)
        parts = {"classification": self.criterion(logits, target)}
        with nullcontext() if goals or self.split_loss_weight else torch.no_grad():
            split_logits = self._through_split(strong, groups)
        if self.split_loss_weight:
            parts["split_classification"] = self.split_loss_weight * self.criterion(split_logits, target)
        for goal, split_goal in goals:
            similarity = negative_cosine_loss(logits, split_goal) + negative_cosine_loss(split_logits, goal)
            parts["similarity"] = self.similarity_weight * similarity
        return sum_parts(logits, parts)

    def set_progress(self, progress: float) -> None:
        """Hand the position to the loss, which may have a schedule."""
        super().set_progress(progress)
        self.criterion.set_progress(progress)

    def epoch_row(self) -> Mapping[str, float]:
        """How many components carry the mass, and how far they are apart."""
        return mixture_row(self.model)

    def diagnose(self, model: nn.Module, batches: Iterable[Batch]) -> dict[str, Any]:
        """Name, priors, distances and the use by each class of every layer."""
        layers = describe_mixture(model, batches, num_classes=len(self.class_counts))
        return {"mixture": [pack_layer(layer) for layer in layers]} if layers else {}

    def _through_split(self, images: Tensor, groups: Tensor) -> Tensor:
        # Batch norms that were not converted must not move either.
        still = nullcontext() if self.reading_settings["update_on_split"] else frozen_statistics(self.model)
        with split_path(self.model, groups), still:
            logits: Tensor = self.model(images)
        return logits


def _check_weights(row: str, split_loss_weight: float | None, similarity_weight: float) -> None:
    if split_loss_weight is not None and len(ROW_PATHS[row]) < 2:
        raise ValueError(
            "split_loss_weight weighs the split path beside the compound one, so it needs the row 'cbn_sbn' or "
            f"'cbn_sbn_dpl', got {split_loss_weight} in the row {row!r} (leave it out)"
        )
    if split_loss_weight is not None and not 0 <= split_loss_weight < math.inf:
        raise ValueError(f"split_loss_weight must be a finite number of zero or more, got {split_loss_weight}")
    if row == "cbn_sbn_dpl" and not 0 < similarity_weight < math.inf:
        raise ValueError(
            f"similarity_weight must be positive and finite, got {similarity_weight} (for none take the row 'cbn_sbn')"
        )
