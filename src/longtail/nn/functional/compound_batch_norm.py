"""Compound and split batch normalization of (N, C, ...) tensors: statistics in, output and new statistics out."""

from typing import Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from longtail.nn.functional.dispatch import fused, fused_in_graph, has_kernel, passes_for
from longtail.nn.functional.mixture import accumulation_dtype
from longtail.nn.functional.mixture_norm import MixtureNorm
from longtail.nn.functional.options import Mixture, Options

StatisticsSource = Literal["batch", "running"]


class MixtureStatistics(NamedTuple):
    """The statistics of a mixture after a batch."""

    prior: Tensor  # τ, (M,)
    mean: Tensor  # μ, (M, C)
    var: Tensor  # σ², (M, C)
    accepted: Tensor  # (), False where NaN or infinity in the batch left the statistics as they were


def compound_batch_norm(
    x: Tensor,
    prior: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    training: bool = False,
    statistics: StatisticsSource = "batch",
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
    temperature: float = 1.0,
    detach_responsibilities: bool = False,
    min_mass: float = 2.0,
    synchronize: bool = False,
    process_group: dist.ProcessGroup | None = None,
) -> tuple[Tensor, MixtureStatistics]:
    """Normalise each point by a mixture of Gaussians, weighted by its responsibilities.

    With the points x_i (all positions of all samples, D = C channels) and w = `responsibilities` under the
    statistics that come in (E-step, eq. 8):

        y_i = Σ_j w_ij (γ_j (x_i - μ_j) / sqrt(σ²_j + eps) + β_j)                        (eq. 16)

    and, while training, μ, σ², τ := (1 - momentum) · old + momentum · the batch's weighted moments
    (M-step and temporal accumulation, eq. 10-15).

    Args:
        x: input, (N, C) or (N, C, ...); channels_last stays channels_last.
        prior: τ, (M,).
        mean: μ, (M, C).
        var: σ², (M, C).
        weight: γ, (M, C); 1 if None.
        bias: β, (M, C); 0 if None.
        training: whether the batch's moments are estimated and folded into the statistics.
        statistics: what normalises while training: "batch", the batch's own weighted moments, with a gradient
            through them, as ordinary batch norm does; or "running", the statistics that come in, without one, as
            the paper's Algorithm 2 has it. In eval, always those that come in.
        momentum: the share of the batch in the new statistics, as in torch. The paper's λ is 1 - momentum: its
            λ = 0.1 read literally is momentum=0.9, read as torch's momentum it is 0.1.
        eps: added to the variances.
        temperature: see `responsibilities`.
        detach_responsibilities: whether w counts as a constant in the backward pass, as in EM.
        min_mass: a component with less mass in the batch than this many points keeps its statistics (τ included;
            the others share the rest of τ) and is normalised by them.
        synchronize: whether moments are summed over the ranks of `process_group`, as in SyncBatchNorm.
        process_group: the ranks to sum over; all if None.

    Returns:
        The output, of the dtype and layout of x, and the new statistics: those that came in if not training. The new
        variance is N/(N - 1) times the population's, N the number of points, as in torch's running_var. A batch with
        NaN or infinity in its moments leaves the statistics as they were.
    """
    options = Options(
        training=training,
        batch_statistics=training and statistics == "batch",
        eps=eps,
        temperature=temperature,
        detach_responsibilities=detach_responsibilities,
        min_mass=min_mass,
        synchronize=synchronize,
        process_group=process_group,
    )
    return normalise(x, None, Mixture(prior, mean, var, weight, bias), options, momentum)


def split_batch_norm(
    x: Tensor,
    groups: Tensor,
    prior: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    statistics: StatisticsSource = "batch",
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
    min_mass: float = 2.0,
    synchronize: bool = False,
    process_group: dist.ProcessGroup | None = None,
) -> tuple[Tensor, MixtureStatistics]:
    """Normalise each sample by the one component of its class group: the training-time companion of the mixture.

        y_i = γ_j (x_i - μ_j) / sqrt(σ²_j + eps) + β_j,   j the group of x_i's sample             (Algorithm 3)

    and μ_j, σ²_j := (1 - momentum) · old + momentum · the moments of group j in the batch (eq. 17-18); τ is not
    touched, and neither is a group that is absent from the batch.

    Args:
        x: input, (N, C) or (N, C, ...).
        groups: the group of each sample, integers 0 ... M-1, (N,).
        prior: τ, (M,), returned as it is.
        mean: see `compound_batch_norm`, as for all that follow.
        var: as above.
        weight: as above.
        bias: as above.
        statistics: as above.
        momentum: as above.
        eps: as above.
        min_mass: as above.
        synchronize: as above.
        process_group: as above.

    Returns:
        The output and the new statistics.
    """
    options = Options(
        training=True,
        batch_statistics=statistics == "batch",
        eps=eps,
        temperature=1.0,
        detach_responsibilities=True,
        min_mass=min_mass,
        synchronize=synchronize,
        process_group=process_group,
    )
    return normalise(x, groups, Mixture(prior, mean, var, weight, bias), options, momentum)


def normalise(
    x: Tensor, groups: Tensor | None, mixture: Mixture, options: Options, momentum: float | Tensor
) -> tuple[Tensor, MixtureStatistics]:
    """`compound_batch_norm` or, where there are groups, `split_batch_norm`."""
    _check_shapes(x, groups, mixture, options)
    if has_kernel(x, mixture, options) and not torch.compiler.is_compiling():
        return _by_kernel(x, groups, mixture, options, momentum)
    prior, mean, var, *_ = mixture
    if has_kernel(x, mixture, options):
        y, batch = fused_in_graph(x, groups, mixture, options)
    else:
        y, batch = _by_definition(x, groups, mixture, options)
    y = y.relu() if options.relu else y
    if not options.training:
        return y, _unchanged(prior, mean, var)
    points = batch[0].sum() if groups is None else batch[0]
    new = _accumulate(prior, mean, var, *batch, momentum=momentum, min_mass=options.min_mass, points=points)
    return y, new if groups is None else new._replace(prior=prior)


def normalise_in_place(
    x: Tensor, groups: Tensor | None, mixture: Mixture, options: Options, momentum: float | Tensor
) -> tuple[Tensor, bool] | None:
    """`compound_batch_norm` or, where there are groups, `split_batch_norm` for a layer that owns its statistics.

    Returns the output and whether the batch was accepted into the statistics, which have been updated where they are;
    or None where no kernel takes the call, and the pure functions have to.
    """
    _check_shapes(x, groups, mixture, options)
    if torch.compiler.is_compiling() or not has_kernel(x, mixture, options):
        return None
    statistics = mixture[:3]
    if not options.training:
        return fused(x, None, mixture, options, statistics, 0.0)
    if not all(statistic.is_contiguous() for statistic in statistics):
        return None
    result = fused(x, groups, mixture, options, statistics, float(momentum))
    torch.autograd.graph.increment_version(statistics)
    return result


def _check_shapes(x: Tensor, groups: Tensor | None, mixture: Mixture, options: Options) -> None:
    prior, mean, var, *_ = mixture
    components, channels = mean.shape
    if groups is not None and groups.shape != x.shape[:1]:
        raise ValueError(f"groups must hold one group number a sample, ({len(x)},), got shape {tuple(groups.shape)}")
    if x.dim() < 2 or x.shape[1] != channels:
        raise ValueError(f"x must be (N, {channels}) or (N, {channels}, ...), got shape {tuple(x.shape)}")
    if not x.is_floating_point():
        raise ValueError(f"x must be a floating-point tensor, got {x.dtype}")
    if prior.shape != (components,) or var.shape != mean.shape:
        raise ValueError(
            f"prior must be ({components},) and var {tuple(mean.shape)} for a mean of that shape, "
            f"got {tuple(prior.shape)} and {tuple(var.shape)}"
        )
    if options.batch_statistics and not options.synchronize and x.numel() < 2 * channels:
        raise ValueError(
            f"x must have more than one value a channel to train on batch statistics, got shape {tuple(x.shape)}; "
            "use a larger batch, statistics='running' or eval mode"
        )


def _unchanged(prior: Tensor, mean: Tensor, var: Tensor) -> MixtureStatistics:
    return MixtureStatistics(prior, mean, var, torch.ones((), dtype=torch.bool, device=mean.device))


def _by_kernel(
    x: Tensor, groups: Tensor | None, mixture: Mixture, options: Options, momentum: float | Tensor
) -> tuple[Tensor, MixtureStatistics]:
    """The kernel estimates, normalises and updates in one call."""
    prior, mean, var, *_ = mixture
    if not options.training:
        return fused(x, None, mixture, options, (prior, mean, var), 0.0)[0], _unchanged(prior, mean, var)
    statistics = prior.new_empty(prior.shape), mean.new_empty(mean.shape), var.new_empty(var.shape)
    y, accepted = fused(x, groups, mixture, options, statistics, float(momentum))
    return y, MixtureStatistics(*statistics, torch.tensor(accepted))


def _by_definition(
    x: Tensor, groups: Tensor | None, mixture: Mixture, options: Options
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """The output and the batch's mass, mean and variance, by the eager path."""
    prior, mean, var, weight, bias = mixture
    assigned = None
    if groups is not None:
        members = groups == torch.arange(len(prior), device=groups.device)[:, None]
        positions = x.shape[2:].numel()
        assigned = members[:, :, None].expand(-1, -1, positions).flatten(1)
    dtype = accumulation_dtype(x)
    prior, mean, var = (statistic.detach().to(dtype) for statistic in (prior, mean, var))
    weight = torch.ones_like(mean) if weight is None else weight.to(dtype)
    bias = torch.zeros_like(mean) if bias is None else bias.to(dtype)
    kind = passes_for(x, mixture)
    y, *batch = MixtureNorm.apply(x, weight, bias, assigned, prior, mean, var, options, kind)
    return y, tuple(batch)


def _accumulate(
    prior: Tensor,
    mean: Tensor,
    var: Tensor,
    mass: Tensor,
    batch_mean: Tensor,
    batch_var: Tensor,
    *,
    momentum: float | Tensor,
    min_mass: float,
    points: Tensor,
) -> MixtureStatistics:
    """Fold the batch's moments into the statistics of the components that have mass in it.

    `points` is how many points a variance was taken over: it makes the sample variance, as torch's running_var is.
    """
    live = mass >= min_mass
    accepted = torch.isfinite(batch_mean).all() & torch.isfinite(batch_var).all()
    # A component without mass keeps its prior, and the living share the rest: τ sums to 1, and none dies for good.
    rest = 1 - torch.where(live, 0.0, prior).sum()
    share = mass / torch.where(live, mass, 0.0).sum().clamp_min(min_mass)
    sample_var = batch_var * (points / (points - 1).clamp_min(1)).unsqueeze(-1)

    def fold(old: Tensor, new: Tensor) -> Tensor:
        take = (live & accepted).view(-1, *[1] * (old.dim() - 1))
        return torch.where(take, torch.lerp(old, new.to(old.dtype), momentum), old)

    return MixtureStatistics(fold(prior, rest * share), fold(mean, batch_mean), fold(var, sample_var), accepted)
