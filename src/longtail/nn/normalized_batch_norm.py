"""Normalized batch norm (NBN): plain statistics, but the affine vectors have a learned length each.

    y = s_w w / ‖w‖ · (x - μ) / √(σ² + ε) + s_b b / ‖b‖

with the statistics μ and σ² of batch norm, vectors w and b over the channels, and learned lengths s_w and s_b. It is a
control for compound batch norm: of the layer it changes the affine part alone.

As described, one scalar s serves both vectors. Ours has one for each, since a trained network has vectors of different
lengths, and a new one has b = 0: so a converted network computes what it did. Where b is 0, its direction starts equal
in all channels, with length 0.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.nn.replace_batch_norms import Select, replace_batch_norms


class NormalizedBatchNorm2d(nn.BatchNorm2d):
    """Batch norm whose affine vectors have learned lengths; see the module's docstring.

    Args:
        num_features: C, the number of channels of the input.
        eps: ε.
        momentum: the share of a batch in the running statistics, as in torch; None for the cumulative average.
        device: of the parameters and buffers.
        dtype: of the parameters and buffers.

    Attributes:
        weight: w, (C,), a parameter whose length means nothing; `bias` is b.
        weight_length: s_w, a parameter of one number; `bias_length` is s_b.

    Example:
        >>> norm = NormalizedBatchNorm2d(4)  # w / ‖w‖ is 1/2 in each channel
        >>> norm.weight_length
        Parameter containing:
        tensor(2., requires_grad=True)
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, device=device, dtype=dtype)
        self.weight_length = nn.Parameter(torch.zeros((), device=device, dtype=dtype))
        self.bias_length = nn.Parameter(torch.zeros((), device=device, dtype=dtype))
        self.set_affine(self.weight, self.bias)

    @torch.no_grad()
    def set_affine(self, weight: Tensor, bias: Tensor) -> None:
        """Take over the affine vectors of a batch norm, (C,) each."""
        for vector, length, given in (
            (self.weight, self.weight_length, weight),
            (self.bias, self.bias_length, bias),
        ):
            length.copy_(given.norm())
            vector.copy_(given if length > 0 else torch.ones_like(given))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to the same shape."""
        plain = F.batch_norm(
            x,
            self.running_mean if not self.training or self.track_running_stats else None,
            self.running_var if not self.training or self.track_running_stats else None,
            training=self.training,
            momentum=self._share(),
            eps=self.eps,
        )
        scale = self.weight_length * F.normalize(self.weight, dim=0)
        shift = self.bias_length * F.normalize(self.bias, dim=0)
        return plain * scale[:, None, None].to(plain.dtype) + shift[:, None, None].to(plain.dtype)

    def _share(self) -> float:
        """The share of this batch in the running statistics, counted first."""
        if not self.training or not self.track_running_stats or self.num_batches_tracked is None:
            return 0.0
        self.num_batches_tracked.add_(1)
        return 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum


def convert_normalized_batch_norm(model: nn.Module, *, select: Select | None = None) -> nn.Module:
    """Replace the batch norms of a model by normalized ones that compute the same.

    Statistics, affine vectors, eps, momentum, training mode, requires_grad, device and dtype are carried over.

    Args:
        model: changed in place; if it is itself a batch norm, only the returned module is new.
        select: takes the path and the module of a batch norm and says whether to convert it; all if None.

    Raises:
        ValueError: there is nothing to convert, or a batch norm cannot be converted: its path and the reason are named,
            and the model is left as it was.
    """

    def convert(old: nn.BatchNorm2d) -> NormalizedBatchNorm2d:
        assert isinstance(old.running_mean, Tensor)
        assert isinstance(old.running_var, Tensor)
        assert isinstance(old.num_batches_tracked, Tensor)
        like = old.running_mean
        new = NormalizedBatchNorm2d(
            old.num_features, eps=old.eps, momentum=old.momentum, device=like.device, dtype=like.dtype
        )
        with torch.no_grad():
            new.running_mean.copy_(old.running_mean)
            new.running_var.copy_(old.running_var)
            if new.num_batches_tracked is not None:
                new.num_batches_tracked.copy_(old.num_batches_tracked)
        new.set_affine(old.weight, old.bias)
        for vector, length, before in (
            (new.weight, new.weight_length, old.weight),
            (new.bias, new.bias_length, old.bias),
        ):
            vector.requires_grad_(before.requires_grad)
            length.requires_grad_(before.requires_grad)
        return new.train(old.training)

    def obstacle(module: nn.BatchNorm2d) -> str | None:
        return None if module.affine else "it has no affine vectors, whose lengths could be learned"

    return replace_batch_norms(model, convert, select=select, obstacle=obstacle)
