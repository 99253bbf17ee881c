"""Compound and split batch normalization of (N, C, ...) tensors: statistics in, output and new statistics out."""

import torch.distributed as dist
from torch import Tensor

from longtail.nn.backends.base import Mixture, MixtureStatistics, Options
from longtail.nn.backends.choose_backend import normalise
from longtail.nn.readings import RunningVariance, StatisticsSource


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
    detach_responsibilities: bool = True,
    min_mass: float = 2.0,
    running_variance: RunningVariance = "sample",
    synchronize: bool = False,
    process_group: dist.ProcessGroup | None = None,
) -> tuple[Tensor, MixtureStatistics]:
    """Normalise each point by a mixture of Gaussians, weighted by its responsibilities.

    With the points x_i (all positions of all samples, D = C channels) and w = `responsibilities` under the
    statistics that come in (E-step, eq. 8):

        y_i = Σ_j w_ij (γ_j (x_i - μ_j) / sqrt(σ²_j + eps) + β_j)                        (eq. 16)

    and, while training, μ, σ², τ := (1 - momentum) · old + momentum · the batch's weighted moments
    (M-step and temporal accumulation, eq. 10-15). `longtail.nn.functional.naive` writes this out. The defaults are
    those of the reading `measured`; see `longtail.nn.readings`.

    Args:
        x: input, (N, C) or (N, C, ...); channels_last stays channels_last.
        prior: τ, (M,).
        mean: μ, (M, C).
        var: σ², (M, C).
        weight: γ, (M, C); 1 if None.
        bias: β, (M, C); 0 if None.
        training: whether the batch's moments are estimated and folded into the statistics.
        statistics: the μ and σ² that normalise while training: "batch", "running" or "updated"; see `Reading`. In
            eval, always those that come in.
        momentum: the share of the batch in the new statistics, as in torch.
        eps: added to the variances.
        detach_responsibilities: whether w counts as a constant in the backward pass, as in EM.
        min_mass: a component with less mass in the batch than this many points keeps its statistics; see `Reading`.
        running_variance: "sample", N/(N - 1) times the batch's variance, N the number of points, or "population".
        synchronize: whether moments are summed over the ranks of `process_group`, as in SyncBatchNorm.
        process_group: the ranks to sum over; all if None.

    Returns:
        The output, of the dtype and layout of x, and the new statistics: those that came in if not training. A batch
        with NaN or infinity in its moments leaves the statistics as they were.
    """
    options = Options(
        training=training,
        statistics=statistics if training else "running",
        eps=eps,
        detach_responsibilities=detach_responsibilities,
        min_mass=min_mass,
        sample_variance=running_variance == "sample",
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
    running_variance: RunningVariance = "sample",
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
        running_variance: as above, with N the number of points of the group.
        synchronize: as above.
        process_group: as above.

    Returns:
        The output and the new statistics.
    """
    options = Options(
        training=True,
        statistics=statistics,
        eps=eps,
        detach_responsibilities=True,
        min_mass=min_mass,
        sample_variance=running_variance == "sample",
        synchronize=synchronize,
        process_group=process_group,
    )
    return normalise(x, groups, Mixture(prior, mean, var, weight, bias), options, momentum)
