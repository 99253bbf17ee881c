"""A linear layer trained by any loss; by default logit adjustment with label smoothing. The one to start with.

    min over W, b:  mean_i L(W h_i + b, y_i) + λ/2 ‖W‖²

with features h and weight decay λ. L is `logit_adjustment_loss` with strength τ and label smoothing ε, or another loss.
Predictions take the plain logits. Smoothing holds back the logits of classes with few images, which a linear layer with
thousands of features separates perfectly. With `whitening`, h is whitened by the scatter within the classes first, and
the map folded into W.

References: Menon et al., ICLR 2021 (logit adjustment); Szegedy et al., CVPR 2016 (label smoothing).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from longtail.heads._solve import fit_layer, zero_linear
from longtail.heads.base import HEADS, Head
from longtail.heads.whiten_within_classes import whiten_within_classes
from longtail.losses import LOSSES, logit_adjustment_loss


@HEADS.register("linear")
class LinearHead(Head):
    """See the module's docstring.

    Args:
        class_counts: training images of each class.
        strength: τ; 0 is plain cross-entropy.
        label_smoothing: ε.
        weight_decay: λ, for the mean loss.
        loss: another name in `LOSSES`, instead of the above; it has its own settings and no smoothing.
        loss_settings: its keyword arguments.
        iterations: of L-BFGS.
        whitening: λ of `whiten_within_classes`; None for none.

    Example:
        >>> import torch
        >>> features = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
        >>> LinearHead([2, 1]).fit(features, torch.tensor([0, 0, 1]))(features).argmax(1)
        tensor([0, 0, 1])
    """

    knob = "weight_decay"
    values = (0.03, 0.1, 0.01, 0.003)
    alternatives: ClassVar[tuple[dict[str, Any], ...]] = ({"whitening": 1.0},)

    def __init__(
        self,
        class_counts: Sequence[int],
        *,
        strength: float = 1.0,
        label_smoothing: float = 0.1,
        weight_decay: float = 0.03,
        loss: str | None = None,
        loss_settings: Mapping[str, Any] | None = None,
        iterations: int = 40,
        whitening: float | None = None,
    ) -> None:
        super().__init__(class_counts)
        if whitening is not None and not 1e-3 <= whitening <= 1e6:
            raise ValueError(f"whitening must be from 0.001 to 1e+06, or None for none, got {whitening}")
        for name, value, most in (("strength", strength, 10.0), ("weight_decay", weight_decay, 1e6)):
            if not 0 <= value <= most:
                raise ValueError(f"{name} must be from 0 to {most:g}, got {value}")
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and less than 1, got {label_smoothing}")
        self.strength, self.label_smoothing, self.weight_decay = strength, label_smoothing, weight_decay
        self.loss, self.loss_settings, self.iterations = loss, loss_settings, iterations
        self.whitening = whitening

    def blank(self, in_features: int) -> nn.Module:
        """A linear layer."""
        return nn.Linear(in_features, len(self.class_counts))

    def fit(self, features: Tensor, target: Tensor) -> nn.Module:
        """Solve the convex problem from zero."""
        layer = zero_linear(features.shape[1], len(self.class_counts))
        white = None if self.whitening is None else whiten_within_classes(features, target, self.whitening)
        seen = features if white is None else white.apply(features)
        fit_layer(layer, seen, self._objective(target), weight_decay=self.weight_decay, iterations=self.iterations)
        return layer if white is None else white.fold(layer)

    def _objective(self, target: Tensor) -> Callable[[Tensor], Tensor]:
        if self.loss is not None:
            criterion = LOSSES[self.loss](list(self.class_counts), **(self.loss_settings or {}))
            return lambda logits: criterion(logits, target)
        return lambda logits: logit_adjustment_loss(
            logits,
            target,
            class_counts=self.class_counts,
            strength=self.strength,
            label_smoothing=self.label_smoothing,
        )
