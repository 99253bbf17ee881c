"""Compound and split batch normalization as the paper writes them: the definition that every backend is held to.

One tensor of size N·M·C, plain autograd: slow and obvious. It imports nothing of ours, and the tests compare outputs,
gradients and statistics with it. Equation numbers are the paper's; points are rows, x (N, C).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """What one batch says of each component."""

    mass: Tensor  # (M,)
    mean: Tensor  # (M, C)
    var: Tensor  # (M, C), with 1/N


def naive_responsibilities(x: Tensor, prior: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """The probability w_ij of each point under each component (eq. 8 and 9), (N, M)."""
    squares = (x[:, None, :] - mean) ** 2 / var
    log_density = -0.5 * (squares + torch.log(2 * math.pi * var)).sum(-1)
    return torch.softmax(torch.log(prior) + log_density, dim=1)


def naive_moments(x: Tensor, weights: Tensor) -> Moments:
    """The weighted moments of the batch (eq. 10 to 12)."""
    mass = weights.sum(0)
    mean = (weights[:, :, None] * x[:, None, :]).sum(0) / mass[:, None]
    var = (weights[:, :, None] * (x[:, None, :] - mean) ** 2).sum(0) / mass[:, None]
    return Moments(mass, mean, var)


def naive_normalise(x: Tensor, weights: Tensor, mean: Tensor, var: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """The weighted sum over the branches (eq. 16)."""
    standard = (x[:, None, :] - mean) / torch.sqrt(var)
    return (weights[:, :, None] * (gamma * standard + beta)).sum(1)


def naive_compound_batch_norm(
    x: Tensor,
    prior: Tensor,
    mean: Tensor,
    var: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    eps: float,
    statistics: str = "batch",
    momentum: float = 0.1,
    detach: bool = False,
) -> tuple[Tensor, Moments]:
    """A training step on (N, C, H, W): the output and the batch's moments; `statistics` is that of `Reading`."""
    points = x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])
    weights = naive_responsibilities(points, prior, mean, var + eps)
    if detach:
        weights = weights.detach()
    batch = naive_moments(points, weights)
    share = {"batch": 1.0, "running": 0.0, "updated": momentum}[statistics]
    used_mean, used_var = torch.lerp(mean, batch.mean, share), torch.lerp(var, batch.var, share)
    y = naive_normalise(points, weights, used_mean, used_var + eps, gamma, beta)
    return y.view(x.shape[0], *x.shape[2:], x.shape[1]).permute(0, 3, 1, 2), batch
