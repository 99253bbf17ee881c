"""Compound batch normalization as layers: `nn.BatchNorm2d` with a mixture of Gaussians in the place of one.

See `longtail.nn.functional.compound_batch_norm` for the maths and `longtail.nn.readings` for the choices. While
training, a layer inside `split_path` takes the split path instead; in eval it always takes the compound path.
"""

import warnings
from typing import Literal, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn

from longtail.nn.backends.base import Mixture, Options
from longtail.nn.backends.choose_backend import normalise
from longtail.nn.readings import READINGS, Reading, check_momentum, find_reading

Activation = Literal["relu"]

# Each one takes as much memory as a batch norm, in every layer and for every position.
MOST_COMPONENTS = 1024


class CompoundBatchNorm(nn.Module):
    """What the layers for 1, 2 and 3 dimensions share; use one of those.

    Args:
        num_features: C, the number of channels of the input.
        components: M, the number of Gaussians.
        eps: added to the variances.
        momentum: the share of a batch in the running statistics, as in torch; None for the cumulative average.
            "reading" is the reading's, or 0.1 if it has none. The paper's λ = 0.1 read literally is 0.9; see
            `longtail.nn.readings`.
        affine: whether there are `weight` and `bias`, (M, C).
        reading: what is done where the paper is silent, a `Reading` or a name in `READINGS`.
        activation: "relu" returns ReLU of the output: what `nn.ReLU` behind the layer does, but on a CPU in one go.
        synchronize: whether moments are summed over the ranks when torch.distributed is initialised.
        process_group: the ranks to sum over; all if None.
        device: of the parameters and buffers.
        dtype: of the parameters and buffers.

    Attributes:
        weight: γ, (M, C), a parameter or None.
        bias: β, (M, C), a parameter or None.
        prior: τ, (M,), a buffer.
        running_mean: μ, (M, C), a buffer.
        running_var: σ², (M, C), a buffer; sample or population variances, as the reading has it.
        num_batches_tracked: how many updates the statistics have had, by either path, a buffer.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    prior: Tensor
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    refused_updates: Tensor

    _input_dims: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        components: int = 4,
        *,
        eps: float = 1e-5,
        momentum: float | Literal["reading"] | None = "reading",
        affine: bool = True,
        reading: str | Reading = "measured",
        activation: Activation | None = None,
        synchronize: bool = True,
        process_group: dist.ProcessGroup | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("num_features", num_features), ("components", components)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if components > MOST_COMPONENTS:
            raise ValueError(f"components must be at most {MOST_COMPONENTS:,}, got {components:,}")
        if activation not in (None, "relu"):
            raise ValueError(f"activation must be None or 'relu', got {activation!r}")
        if eps < 0:
            raise ValueError(f"eps must be zero or more, got {eps}")
        self.reading = find_reading(reading)
        if momentum == "reading":
            momentum = 0.1 if self.reading.momentum is None else self.reading.momentum
        check_momentum(momentum)
        self.num_features = num_features
        self.components = components
        self.eps = eps
        self.momentum: float | None = momentum
        self.affine = affine
        self.activation: Activation | None = activation
        self.synchronize = synchronize
        self.process_group = process_group
        self.track_running_stats = True  # unset by frozen_statistics; the name is torch's
        self._groups: Tensor | None = None  # set by split_path
        self._warned = False

        shape = (components, num_features)
        for name in ("weight", "bias"):
            parameter = nn.Parameter(torch.empty(shape, device=device, dtype=dtype)) if affine else None
            self.register_parameter(name, parameter)
        self.register_buffer("prior", torch.empty(components, device=device, dtype=dtype))
        self.register_buffer("running_mean", torch.empty(shape, device=device, dtype=dtype))
        self.register_buffer("running_var", torch.empty(shape, device=device, dtype=dtype))
        self.register_buffer("num_batches_tracked", torch.zeros((), dtype=torch.long, device=device))
        self.register_buffer("refused_updates", torch.zeros((), dtype=torch.long, device=device), persistent=False)
        self.reset_parameters()

    @torch.no_grad()
    def reset_running_stats(self) -> None:
        """Start the components anew, as the reading says; one Gaussian starts as batch norm."""
        self.prior.fill_(1 / self.components)
        self.running_mean.zero_()
        self.running_var.fill_(1)
        self.num_batches_tracked.zero_()
        self.refused_updates.zero_()
        if self.reading.component_init == "random" and self.components > 1:
            self.running_mean.normal_()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start statistics and affine parameters anew: in eval the layer computes what a new batch norm does."""
        self.reset_running_stats()
        if self.weight is not None and self.bias is not None:
            self.weight.fill_(1)
            # (x - μ_j)/σ + μ_j/σ = x/σ: each component alone is batch norm.
            self.bias.copy_(self.running_mean / (self.running_var + self.eps).sqrt())

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x, (N, C, ...); while training, also update the statistics."""
        if x.dim() not in self._input_dims:
            wanted = " or ".join(f"{dims}-D" for dims in self._input_dims)
            raise ValueError(f"{type(self).__name__} takes {wanted} input, got shape {tuple(x.shape)}")
        training, reading = self.training, self.reading
        groups = self._groups if training else None
        statistics = (self.prior, self.running_mean, self.running_var)
        options = Options(
            training=training,
            statistics=reading.statistics if training else "running",
            eps=self.eps,
            detach_responsibilities=reading.detach_responsibilities or groups is not None,
            min_mass=reading.min_mass,
            sample_variance=reading.running_variance == "sample",
            synchronize=training and self.synchronize and dist.is_available() and dist.is_initialized(),
            process_group=self.process_group,
            relu=self.activation == "relu",
        )
        momentum: float | Tensor = 0.0 if self.momentum is None else self.momentum
        if training and self.momentum is None:
            momentum = 1 / (self.num_batches_tracked + 1).to(self.running_mean.dtype)
        updating = training and self.track_running_stats and (groups is None or reading.update_on_split)
        mixture = Mixture(*statistics, *self._affine())
        y, new = normalise(x, groups, mixture, options, momentum, out=statistics if updating else None)
        if updating:
            self._count(new.accepted)
        return y

    @torch.no_grad()
    def _count(self, accepted: Tensor | bool) -> None:
        """Count an update that was made, or refused because of NaN or infinity in the batch."""
        if accepted is True:
            self.num_batches_tracked.add_(1)
            return
        accepted = torch.as_tensor(accepted)
        self.num_batches_tracked.add_(accepted)
        self.refused_updates.add_(~accepted)
        # Reading the count elsewhere would wait for the device at each step: there, train() and eval() read it.
        if not torch.compiler.is_compiling() and self.refused_updates.device.type == "cpu":
            self._warn_of_refused_updates()

    def _warn_of_refused_updates(self) -> None:
        if not self._warned and self.refused_updates.item():
            self._warned = True
            warnings.warn(
                f"{type(self).__name__}: NaN or infinity in the input; the statistics are left as they were. "
                "This layer warns once.",
                stacklevel=4,
            )

    def _affine(self) -> tuple[Tensor | None, Tensor | None]:
        """The affine sets, with gradients that count M times if they should; the values are the same to the bit."""
        weight, bias = self.weight, self.bias
        if weight is None or bias is None:
            return None, None
        if not (self.reading.scale_affine and self.components > 1 and self.training and torch.is_grad_enabled()):
            return weight, bias
        fixed = weight.detach(), bias.detach()
        return fixed[0] + self.components * (weight - fixed[0]), fixed[1] + self.components * (bias - fixed[1])

    def train(self, mode: bool = True) -> Self:
        """Set the mode, as in torch; says here if updates were refused on a device or in a compiled graph."""
        if self.refused_updates.device.type != "meta":
            self._warn_of_refused_updates()
        return super().train(mode)

    def extra_repr(self) -> str:
        """The arguments that matter; the reading by its name, if it has one."""
        name = next((name for name, known in READINGS.items() if known == self.reading), None)
        parts = [
            f"{self.num_features}",
            f"components={self.components}",
            f"eps={self.eps}",
            f"momentum={self.momentum}",
            f"reading={name!r}" if name else f"reading={self.reading}",
        ]
        if not self.affine:
            parts.append("affine=False")
        if self.activation:
            parts.append(f"activation={self.activation!r}")
        return ", ".join(parts)


class CompoundBatchNorm1d(CompoundBatchNorm):
    """Compound batch normalization of (N, C) or (N, C, L); see `CompoundBatchNorm`."""

    _input_dims = (2, 3)


class CompoundBatchNorm2d(CompoundBatchNorm):
    """Compound batch normalization of (N, C, H, W); see `CompoundBatchNorm`.

    Example:
        >>> norm = CompoundBatchNorm2d(64, components=4)
        >>> norm(torch.randn(8, 64, 16, 16)).shape
        torch.Size([8, 64, 16, 16])
    """

    _input_dims = (4,)


class CompoundBatchNorm3d(CompoundBatchNorm):
    """Compound batch normalization of (N, C, D, H, W); see `CompoundBatchNorm`."""

    _input_dims = (5,)
