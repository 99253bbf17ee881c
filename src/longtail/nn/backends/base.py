"""What a backend is given, what it gives back, and how a batch is accumulated into the statistics.

A backend has two methods. `forward` estimates the responsibilities, normalises and accumulates; `backward` gives the
gradients of the input and the affine parameters. `longtail.nn.functional.naive` says the same in a few lines; here each
is written such that nothing of size N·M·C is made and little is kept for the backward pass.
"""

from typing import ClassVar, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from longtail.nn.readings import StatisticsSource

Saved = tuple[Tensor | None, ...]
Statistics = tuple[Tensor, Tensor, Tensor]  # prior (M,), mean and variance (M, C)


class Options(NamedTuple):
    """What is fixed for one call; see `Reading` for their meaning."""

    training: bool
    statistics: StatisticsSource  # what normalises; "running" in eval
    eps: float
    detach_responsibilities: bool
    min_mass: float
    sample_variance: bool
    synchronize: bool = False
    process_group: dist.ProcessGroup | None = None
    relu: bool = False  # whether the output goes through ReLU

    @property
    def sums_over_ranks(self) -> bool:
        """Whether other ranks have a part in the moments."""
        return self.synchronize and self.training

    @property
    def moments_first(self) -> bool:
        """Whether the batch's moments must be known before a point can be normalised."""
        return self.training and self.statistics != "running"


class Mixture(NamedTuple):
    """The statistics and the affine parameters that come in."""

    prior: Tensor  # τ, (M,)
    mean: Tensor  # μ, (M, C)
    var: Tensor  # σ², (M, C)
    weight: Tensor | None  # γ, (M, C); None for 1
    bias: Tensor | None  # β, (M, C); None for 0


class MixtureStatistics(NamedTuple):
    """The statistics of a mixture after a batch."""

    prior: Tensor  # τ, (M,)
    mean: Tensor  # μ, (M, C)
    var: Tensor  # σ², (M, C)
    accepted: Tensor | bool  # False where NaN or infinity in the batch left the statistics as they were


# The new statistics; or, where they went to `out`, whether the batch was accepted; or None in eval.
Update = MixtureStatistics | bool | None


class Backend(Protocol):
    """One way to compute the layer. All have the same two methods, and the same results but for rounding."""

    fuses_relu: ClassVar[bool]

    @classmethod
    def forward(
        cls,
        x: Tensor,
        groups: Tensor | None,
        mixture: Mixture,
        options: Options,
        momentum: float | Tensor,
        *,
        keep: bool,
        out: Statistics | None,
    ) -> tuple[Tensor, Update, Saved]:
        """The output, what became of the statistics, and what `backward` needs.

        Args:
            x: input, (N, C, ...).
            groups: the group of each sample, int64, (N,), for the split path; None for the compound path.
            mixture: statistics and affine parameters.
            options: what is fixed for the call.
            momentum: the share of the batch in the new statistics.
            keep: whether a backward pass follows.
            out: where a backend may write the new prior, mean and variance; they may be the old ones.
        """

    @classmethod
    def backward(cls, grad: Tensor, saved: Saved, options: Options, *, needs_input: bool) -> tuple[Tensor | None, ...]:
        """The gradients of x (None unless it is needed), γ and β."""


def is_live(mass: Tensor, min_mass: float) -> Tensor:
    """Which components have the mass in the batch for moments of their own, (M,)."""
    return (mass >= min_mass) & (mass > 0)


def variance_factor(mass: Tensor, options: Options, *, split: bool) -> Tensor:
    """What turns the batch's variances into those that are accumulated: 1, or N/(N - 1), (M,) or ().

    N is the number of points that a variance was taken over: those of the group on the split path, else all.
    """
    points = mass if split else mass.sum()
    return points / (points - 1).clamp_min(1) if options.sample_variance else torch.ones_like(points)


def accumulate(
    mixture: Mixture,
    mass: Tensor,
    batch_mean: Tensor,
    batch_var: Tensor,
    *,
    options: Options,
    momentum: float | Tensor,
    split: bool,
) -> MixtureStatistics:
    """Fold the batch's moments into the statistics of the components that have mass in it (eq. 13 to 15).

    The CPU's kernel does the same in C (`accumulate` in statistics.h): some thirty operations on small tensors would
    cost it up to a tenth of a forward pass.
    """
    live = is_live(mass, options.min_mass)
    accepted = torch.isfinite(batch_mean).all() & torch.isfinite(batch_var).all()
    factor = variance_factor(mass, options, split=split).unsqueeze(-1)

    def fold(old: Tensor, new: Tensor, which: Tensor) -> Tensor:
        take = (which & accepted).view(-1, *[1] * (old.dim() - 1))
        return torch.where(take, torch.lerp(old, new.to(old.dtype), momentum), old)

    prior = mixture.prior
    if not split:
        # With a least mass, a component without it keeps its prior, and the living share the rest: τ sums to 1, and
        # none dies for good. The letter has τ̂ = mass / N for all.
        moved = live if options.min_mass > 0 else (mass.sum() > 0).expand_as(live)
        rest = 1 - torch.where(moved, 0.0, prior).sum()
        share = mass / torch.where(moved, mass, 0.0).sum().clamp_min(torch.finfo(mass.dtype).tiny)
        prior = fold(prior, rest * share, moved)
    mean, var = fold(mixture.mean, batch_mean, live), fold(mixture.var, batch_var * factor, live)
    return MixtureStatistics(prior, mean, var, accepted)
