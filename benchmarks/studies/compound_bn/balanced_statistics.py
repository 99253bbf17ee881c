"""Batch norm whose statistics weight rare classes more: not in the paper, a row that the ladder tries.

    mean = Σ_i ω_i x_i / Σ_i ω_i,   var = Σ_i ω_i (x_i - mean)² / Σ_i ω_i,   ω_i = n_y^-power

with n_y the training images of the class of x_i's image. Power 0 is batch norm; with power 1 all classes have the
same expected weight in a batch.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.losses import LOSSES
from longtail.methods import Method, MethodOutput
from longtail.methods.base import sum_parts


class WeightedBatchNorm2d(nn.BatchNorm2d):
    """Batch norm with a weight for each sample, to be set before each training pass."""

    weights: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise by the weighted moments while training, by the running ones in eval."""
        if not self.training or self.weights is None:
            return super().forward(x)
        share = (self.weights / (self.weights.sum() * x.shape[2:].numel())).view(-1, 1, 1, 1)
        mean = (share * x).sum((0, 2, 3))
        centred = x - mean.view(1, -1, 1, 1)
        var = (share * centred.square()).sum((0, 2, 3))
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
        scale = self.weight * (var + self.eps).rsqrt()
        return torch.addcmul(self.bias.view(1, -1, 1, 1), centred, scale.view(1, -1, 1, 1))


class BalancedStatistics(Method):
    """The baseline with class-weighted statistics; see the module.

    Args:
        model: its batch norms are replaced.
        class_counts: training images of each class.
        power: the exponent of the weights, 0 to 1.
    """

    sample_weights: Tensor

    def __init__(self, model: nn.Module, class_counts: Sequence[int], *, power: float = 1.0) -> None:
        super().__init__(model, class_counts, views=("strong",))
        self.power = power
        self.loss = LOSSES["balanced_softmax"](self.class_counts)
        weights = torch.tensor(self.class_counts, dtype=torch.float32).pow(-power)
        self.register_buffer("sample_weights", weights, persistent=False)
        for module in list(model.modules()):
            for name, norm in module.named_children():
                if type(norm) is nn.BatchNorm2d:
                    setattr(module, name, WeightedBatchNorm2d(norm.num_features))

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of one batch."""
        (batch,) = batches
        for module in self.model.modules():
            if isinstance(module, WeightedBatchNorm2d):
                module.weights = self.sample_weights[batch.target]
        (images,) = self.views_of(batch)
        logits = self.model(images)
        return sum_parts(logits, {"classification": self.loss(logits, batch.target)})
