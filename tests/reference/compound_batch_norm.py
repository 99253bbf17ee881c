"""Compound and split batch normalization as the paper writes them: one tensor of size N·M·D, plain autograd.

Slow and obvious, imports nothing of ours. Equation numbers are the paper's.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    mass: Tensor
    mean: Tensor
    var: Tensor


def naive_responsibilities(x: Tensor, prior: Tensor, mean: Tensor, var: Tensor, temperature: float = 1.0) -> Tensor:
    """Equations 8 and 9; x (N, D), mean and var (M, D)."""
    squares = (x[:, None, :] - mean) ** 2 / var
    log_density = -0.5 * (squares + torch.log(2 * math.pi * var)).sum(-1)
    return torch.softmax(torch.log(prior) + log_density / temperature, dim=1)


def naive_moments(x: Tensor, weights: Tensor) -> Moments:
    """Equations 10 to 12."""
    mass = weights.sum(0)
    mean = (weights[:, :, None] * x[:, None, :]).sum(0) / mass[:, None]
    var = (weights[:, :, None] * (x[:, None, :] - mean) ** 2).sum(0) / mass[:, None]
    return Moments(mass, mean, var)


def naive_normalise(x: Tensor, weights: Tensor, mean: Tensor, var: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """Equation 16."""
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
    temperature: float = 1.0,
    detach: bool = False,
) -> tuple[Tensor, Moments]:
    """A training step on (N, C, H, W): the output and the batch's moments."""
    points = x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])
    weights = naive_responsibilities(points, prior, mean, var + eps, temperature)
    if detach:
        weights = weights.detach()
    batch = naive_moments(points, weights)
    used_mean, used_var = (batch.mean, batch.var) if statistics == "batch" else (mean, var)
    y = naive_normalise(points, weights, used_mean, used_var + eps, gamma, beta)
    return y.view(x.shape[0], *x.shape[2:], x.shape[1]).permute(0, 3, 1, 2), batch
