"""The optimiser, its schedule, and the average of the weights."""

import math

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from longtail.training.run_config import OptimConfig


def build_optimizer(module: nn.Module, config: OptimConfig) -> Optimizer:
    """SGD or AdamW over all parameters; a method that trains a part of them gives the others no gradient."""
    parameters = list(module.parameters())
    if config.name == "adamw":
        return AdamW(parameters, lr=config.lr, weight_decay=config.weight_decay)
    return SGD(
        parameters,
        lr=config.lr,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
    )


def learning_rate(config: OptimConfig, *, position: float, epochs: int) -> float:
    """The learning rate at `position` of the schedule, 0 to 1: a straight rise, then half a cosine down to 0.

    Example:
        >>> config = OptimConfig(lr=1.0, warmup_epochs=10)
        >>> [round(learning_rate(config, position=p, epochs=100), 3) for p in (0.05, 0.1, 0.55, 1.0)]
        [0.5, 1.0, 0.5, 0.0]
    """
    warmup = config.warmup_epochs / epochs
    if position < warmup:
        return config.lr * position / warmup
    rest = (position - warmup) / max(1 - warmup, 1e-9)
    return config.lr * 0.5 * (1 + math.cos(math.pi * min(rest, 1.0)))


def set_learning_rate(optimizer: Optimizer, value: float) -> None:
    """Set it in every group."""
    for group in optimizer.param_groups:
        group["lr"] = value


def build_average(model: nn.Module, decay: float | None) -> AveragedModel | None:
    """An exponential moving average of weights and buffers, or None."""
    if decay is None:
        return None
    if not 0 < decay < 1:
        raise ValueError(f"optim.ema must be between 0 and 1, got {decay}")
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)
    return average.requires_grad_(False)


def reseed(seed: int, *position: int) -> None:
    """Seed torch's generator from the position in the training, so that no state need be kept.

    The numbers are mixed into one by torch's own generator of the first: neighbouring positions share nothing.
    """
    mixed = torch.tensor([seed, *position], dtype=torch.int64)
    value = 0
    for part in mixed.tolist():
        value = (value * 6364136223846793005 + part + 1442695040888963407) % (1 << 63)
    torch.manual_seed(value)
