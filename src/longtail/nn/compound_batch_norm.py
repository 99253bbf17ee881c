"""Compound batch normalization as layers: `nn.BatchNorm2d` with a mixture of Gaussians in the place of one.

See `longtail.nn.functional.compound_batch_norm` for the maths. While training, a layer inside `split_path`
takes the split path instead; in eval it always takes the compound path.
"""

import warnings
from typing import Literal, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn

from longtail.nn.functional import MixtureStatistics, StatisticsSource
from longtail.nn.functional.compound_batch_norm import normalise, normalise_in_place
from longtail.nn.functional.options import Mixture, Options

ComponentInit = Literal["equal", "random"]
AffineInit = Literal["identity", "matched"]
Activation = Literal["relu"]


class CompoundBatchNorm(nn.Module):
    """What the layers for 1, 2 and 3 dimensions share; use one of those.

    Where the paper is silent or contradicts itself, each reading is an argument.

    Args:
        num_features: C, the number of channels of the input.
        components: M, the number of Gaussians.
        eps: added to the variances.
        momentum: the share of a batch in the running statistics, as in torch; None for the cumulative average. The
            paper's λ is 1 - momentum: its λ = 0.1 read literally is momentum=0.9.
        affine: whether there are `weight` and `bias`, (M, C).
        statistics: what normalises while training, "batch" (the batch's moments, with gradient, as in batch norm) or
            "running" (the buffers, without gradient, as in the paper's Algorithm 2).
        split_statistics: the same for the split path; None takes `statistics`. A rare class group has one or two images
            in a batch, whose moments say little of it: "running" normalises them by what was gathered before.
        temperature: divides the log-density in the responsibilities; "channels" stands for C. 1 is the paper's.
        detach_responsibilities: whether the responsibilities are constants in the backward pass.
        component_init: "equal" components make the layer identical to batch norm until the split path parts them;
            "random" draws each mean from N(0, 1).
        affine_init: "identity" is γ = 1, β = 0, which maps each component onto the same distribution; "matched"
            starts γ and β so that at the initial statistics the sum is plain batch norm.
        scale_affine: whether the gradients of `weight` and `bias` count M times while training. The responsibilities
            of a point sum to one, so each of the M sets gets a share of the gradient, 1/M of it while components are
            equal, but the whole of SGD's weight decay; with the factor equal components learn as batch norm does.
        min_mass: a component with fewer points than this in the batch keeps its statistics.
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
        running_var: σ², (M, C), a buffer; sample variances, as torch's.
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
        momentum: float | None = 0.1,
        affine: bool = True,
        statistics: StatisticsSource = "batch",
        split_statistics: StatisticsSource | None = None,
        temperature: float | Literal["channels"] = 1.0,
        detach_responsibilities: bool = False,
        component_init: ComponentInit = "equal",
        affine_init: AffineInit = "identity",
        scale_affine: bool = False,
        min_mass: float = 2.0,
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
        split_statistics = statistics if split_statistics is None else split_statistics
        _one_of("statistics", statistics, ("batch", "running"))
        _one_of("split_statistics", split_statistics, ("batch", "running"))
        _one_of("component_init", component_init, ("equal", "random"))
        _one_of("affine_init", affine_init, ("identity", "matched"))
        if activation is not None:
            _one_of("activation", activation, ("relu",))
        if momentum is not None and not 0 <= momentum <= 1:
            raise ValueError(f"momentum must be None or between 0 and 1, got {momentum}")
        if eps < 0:
            raise ValueError(f"eps must be zero or more, got {eps}")
        if temperature != "channels" and not (isinstance(temperature, int | float) and temperature > 0):
            raise ValueError(f"temperature must be positive or 'channels', got {temperature!r}")
        if min_mass <= 0:
            raise ValueError(f"min_mass must be positive, got {min_mass}")
        self.num_features = num_features
        self.components = components
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.statistics: StatisticsSource = statistics
        self.split_statistics: StatisticsSource = split_statistics
        self.temperature: float | Literal["channels"] = temperature
        self.detach_responsibilities = detach_responsibilities
        self.component_init: ComponentInit = component_init
        self.affine_init: AffineInit = affine_init
        self.scale_affine = scale_affine
        self.min_mass = min_mass
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
        """Start the components anew, as `component_init` says."""
        self.prior.fill_(1 / self.components)
        self.running_var.fill_(1)
        self.num_batches_tracked.zero_()
        self.refused_updates.zero_()
        if self.component_init == "equal":
            self.running_mean.zero_()
        else:
            self.running_mean.normal_()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start statistics and affine parameters anew, as `component_init` and `affine_init` say."""
        self.reset_running_stats()
        if self.weight is None or self.bias is None:
            return
        self.weight.fill_(1)
        self.bias.zero_()
        if self.affine_init == "matched":
            mean = self.prior @ self.running_mean
            # The variance of the whole is the mean of the variances plus the variance of the means.
            var = self.prior @ (self.running_var + (self.running_mean - mean).square())
            self.weight.copy_(((self.running_var + self.eps) / (var + self.eps)).sqrt())
            self.bias.copy_((self.running_mean - mean) * (var + self.eps).rsqrt())

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x, (N, C, ...); while training, also update the statistics."""
        if x.dim() not in self._input_dims:
            wanted = " or ".join(f"{dims}-D" for dims in self._input_dims)
            raise ValueError(f"{type(self).__name__} takes {wanted} input, got shape {tuple(x.shape)}")
        prior, mean, var = self.prior, self.running_mean, self.running_var
        mixture = Mixture(prior, mean, var, *self._affine())
        temperature = float(self.num_features) if self.temperature == "channels" else self.temperature
        training = self.training
        groups = self._groups if training else None
        source = self.statistics if groups is None else self.split_statistics
        options = Options(
            training=training,
            batch_statistics=training and source == "batch",
            eps=self.eps,
            temperature=temperature,
            detach_responsibilities=self.detach_responsibilities or groups is not None,
            min_mass=self.min_mass,
            synchronize=training and self.synchronize and dist.is_available() and dist.is_initialized(),
            process_group=self.process_group,
            relu=self.activation == "relu",
        )
        momentum: float | Tensor = 0.0 if self.momentum is None else self.momentum
        if training and self.momentum is None:
            momentum = 1 / (self.num_batches_tracked + 1).to(mean.dtype)
        updating = training and self.track_running_stats
        done = None if training and not updating else normalise_in_place(x, groups, mixture, options, momentum)
        if done is None:
            y, new = normalise(x, groups, mixture, options, momentum)
            if updating:
                self._update(new)
            return y
        y, accepted = done
        if training and accepted:
            self.num_batches_tracked.add_(1)
        elif training:
            self.refused_updates.add_(1)
            self._warn_of_refused_updates()
        return y

    @torch.no_grad()
    def _update(self, new: MixtureStatistics) -> None:
        self.prior.copy_(new.prior)
        self.running_mean.copy_(new.mean)
        self.running_var.copy_(new.var)
        self.num_batches_tracked.add_(new.accepted)
        self.refused_updates.add_(~new.accepted)
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
        if weight is None or bias is None or not (self.scale_affine and self.training and torch.is_grad_enabled()):
            return weight, bias
        fixed = weight.detach(), bias.detach()
        return fixed[0] + self.components * (weight - fixed[0]), fixed[1] + self.components * (bias - fixed[1])

    def train(self, mode: bool = True) -> Self:
        """Set the mode, as in torch; says here if updates were refused on a device or in a compiled graph."""
        if self.refused_updates.device.type != "meta":
            self._warn_of_refused_updates()
        return super().train(mode)

    def extra_repr(self) -> str:
        """The arguments that matter."""
        parts = [
            f"{self.num_features}",
            f"components={self.components}",
            f"eps={self.eps}",
            f"momentum={self.momentum}",
            f"statistics={self.statistics!r}",
        ]
        if self.split_statistics != self.statistics:
            parts.append(f"split_statistics={self.split_statistics!r}")
        if not self.affine:
            parts.append("affine=False")
        if self.temperature != 1:
            parts.append(f"temperature={self.temperature!r}")
        if self.detach_responsibilities:
            parts.append("detach_responsibilities=True")
        if self.scale_affine:
            parts.append("scale_affine=True")
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


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
