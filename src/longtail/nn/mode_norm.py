"""Mode normalization: batch norm with K sets of statistics, between which a learned gate chooses for each image.

    g_n  = softmax(W x̄_n + b)
    μ_k  = Σ_n g_nk x̄_n / Σ_n g_nk,    σ²_k = Σ_n g_nk mean_p (x_np - μ_k)² / Σ_n g_nk
    y_np = γ Σ_k g_nk (x_np - μ_k) / √(σ²_k + ε) + β

with the value x_np of image n at pixel p, its mean x̄_n over the pixels, and the gates g_n of K modes. While training,
the statistics are the batch's and move running ones, by which eval normalises. Gradients pass through gates and
statistics. All modes share γ and β. K = 1 is batch norm.

It is a control for compound batch norm: a mixture too, but of whole images, learned by the loss, and with one affine
set. The gate starts near uniform, from small random weights: at exactly uniform gates all modes would stay the same.

Reference: Deecke et al., "Mode Normalization", ICLR 2019, algorithm 1. The paper keeps a running mean of x²; ours keeps
that of the sample variance, as torch does.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.nn.replace_batch_norms import Select, replace_batch_norms

# The deviation of the gate's first weights.
MOST_MODES = 1024
GATE_INIT = 0.01


def mode_statistics(x: Tensor, gates: Tensor) -> tuple[Tensor, Tensor]:
    """Means and population variances of each mode, (K, C) each.

    Args:
        x: float32 or better, (B, C, H, W).
        gates: g, (B, K), rows that sum to 1.
    """
    # Moments around the batch's mean: those around 0 cancel where the mean is large.
    shift = x.detach().mean((0, 2, 3))
    centred = x - shift[:, None, None]
    share = (gates / gates.sum(0).clamp_min(torch.finfo(x.dtype).tiny))[:, :, None]
    first = (share * centred.mean((2, 3))[:, None]).sum(0)
    second = (share * centred.square().mean((2, 3))[:, None]).sum(0)
    return shift + first, (second - first.square()).clamp_min(0)


class ModeNorm2d(nn.BatchNorm2d):
    """Mode normalization of images; see the module's docstring.

    Args:
        num_features: C, the number of channels of the input.
        modes: K.
        eps: ε.
        momentum: the share of a batch in the running statistics, as in torch; None for the cumulative average.
        affine: whether there are `weight` γ and `bias` β, (C,).
        device: of the parameters and buffers.
        dtype: of the parameters and buffers.

    Attributes:
        running_mean: (K, C), a buffer; `running_var` too.
        gate_weight: W, (K, C), a parameter; `gate_bias` is b, (K,).

    Example:
        >>> ModeNorm2d(8, modes=2)(torch.randn(4, 8, 6, 6)).shape
        torch.Size([4, 8, 6, 6])
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(
        self,
        num_features: int,
        modes: int = 2,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if not 1 <= modes <= MOST_MODES:
            raise ValueError(f"modes must be at least 1 and at most {MOST_MODES:,}, got {modes:,}")
        super().__init__(num_features, eps, momentum, affine, device=device, dtype=dtype)
        self.modes = modes
        self.running_mean = self.running_mean.expand(modes, -1).clone()
        self.running_var = self.running_var.expand(modes, -1).clone()
        self.gate_weight = nn.Parameter(GATE_INIT * torch.randn(modes, num_features, device=device, dtype=dtype))
        self.gate_bias = nn.Parameter(torch.zeros(modes, device=device, dtype=dtype))

    def gates(self, x: Tensor) -> Tensor:
        """The gates g of images (B, C, H, W), (B, K), in float32 or better."""
        pooled = _at_least_float32(x).mean((2, 3))
        # Products and sums, not a matrix product, which autocast would round.
        return F.softmax((pooled[:, None] * self.gate_weight).sum(2) + self.gate_bias, dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to the same shape."""
        self._check_input_dim(x)
        gates = self.gates(x)
        if self.training:
            mean, variance = mode_statistics(_at_least_float32(x), gates)
            if self.track_running_stats:
                self._track(mean.detach(), variance.detach(), gates.detach().sum(0) * x.shape[2] * x.shape[3])
        else:
            mean, variance = self.running_mean, self.running_var
        rate = (variance + self.eps).rsqrt()
        scale = (gates[:, :, None] * rate).sum(1)
        shift = -(gates[:, :, None] * (mean * rate)).sum(1)
        if self.affine:
            scale, shift = scale * self.weight, shift * self.weight + self.bias
        return x * scale[:, :, None, None].to(x.dtype) + shift[:, :, None, None].to(x.dtype)

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor, mass: Tensor) -> None:
        """Move the running statistics; a mode with less than two points of mass keeps its own."""
        self.num_batches_tracked.add_(1)
        share = 1 / self.num_batches_tracked.to(mean) if self.momentum is None else mean.new_tensor(self.momentum)
        share = torch.where(mass >= 2, share, torch.zeros_like(share))[:, None]
        sample = variance * (mass / (mass - 1).clamp_min(1))[:, None]
        self.running_mean.lerp_(mean.to(self.running_mean), share.to(self.running_mean))
        self.running_var.lerp_(sample.to(self.running_var), share.to(self.running_var))

    def extra_repr(self) -> str:
        """The sizes and the settings."""
        return (
            f"{self.num_features}, modes={self.modes}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}"
        )


def convert_mode_norm(model: nn.Module, modes: int = 2, *, select: Select | None = None) -> nn.Module:
    """Replace the batch norms of a model by mode normalization that computes the same in eval mode.

    All modes start with the statistics of the batch norm, so that no gate makes a difference. Affine parameters, eps,
    momentum, training mode, requires_grad, device and dtype are carried over.

    Args:
        model: changed in place; if it is itself a batch norm, only the returned module is new.
        modes: K.
        select: takes the path and the module of a batch norm and says whether to convert it; all if None.

    Raises:
        ValueError: there is nothing to convert, or a batch norm cannot be converted: its path and the reason are named,
            and the model is left as it was.
    """

    def convert(old: nn.BatchNorm2d) -> ModeNorm2d:
        assert isinstance(old.running_mean, Tensor)
        assert isinstance(old.running_var, Tensor)
        assert isinstance(old.num_batches_tracked, Tensor)
        like = old.running_mean
        new = ModeNorm2d(
            old.num_features,
            modes,
            eps=old.eps,
            momentum=old.momentum,
            affine=old.affine,
            device=like.device,
            dtype=like.dtype,
        )
        with torch.no_grad():
            new.running_mean.copy_(old.running_mean)
            new.running_var.copy_(old.running_var)
            new.num_batches_tracked.copy_(old.num_batches_tracked)
            for name, parameter in old.named_parameters():
                new.get_parameter(name).copy_(parameter).requires_grad_(parameter.requires_grad)
        return new.train(old.training)

    return replace_batch_norms(model, convert, select=select)


def _at_least_float32(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
