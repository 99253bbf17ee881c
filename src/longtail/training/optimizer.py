"""The optimiser, its schedule, SAM's ascent, and the average of the weights."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from longtail.methods import Method
from longtail.training.run_config import OptimConfig


def build_optimizer(method: Method, config: OptimConfig) -> Optimizer:
    """SGD or AdamW over the method's parameter groups."""
    groups = method.parameter_groups()
    if config.name == "adamw":
        return AdamW(groups, lr=config.lr, weight_decay=config.weight_decay)
    return SGD(
        groups,
        lr=config.lr,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
    )


def learning_rate(config: OptimConfig, *, progress: float, epochs: int, stages: Sequence[float] = (0.0,)) -> float:
    """The learning rate when `progress` of the training is done: a linear warm-up, then half a cosine down to 0.

    Args:
        config: its highest learning rate, and the epochs of the warm-up.
        progress: 0 to 1.
        epochs: of the whole training.
        stages: progress values at which the schedule starts again, 0 first.

    Example:
        >>> config = OptimConfig(lr=1.0, warmup_epochs=10)
        >>> [round(learning_rate(config, progress=p, epochs=100), 3) for p in (0.05, 0.1, 0.55, 1.0)]
        [0.5, 1.0, 0.5, 0.0]
        >>> round(learning_rate(config, progress=0.85, epochs=100, stages=(0.0, 0.8)), 3)
        0.5
    """
    start = max(stage for stage in stages if stage <= progress)
    end = min((stage for stage in stages if stage > progress), default=1.0)
    done, length = (progress - start) * epochs, (end - start) * epochs
    if done < config.warmup_epochs:
        return config.lr * done / config.warmup_epochs
    rest = (done - config.warmup_epochs) / max(length - config.warmup_epochs, 1e-9)
    return config.lr * 0.5 * (1 + math.cos(math.pi * min(rest, 1.0)))


def set_learning_rate(optimizer: Optimizer, value: float) -> None:
    """Set it in every group, times the group's `lr_scale`."""
    for group in optimizer.param_groups:
        group["lr"] = value * group.get("lr_scale", 1.0)


@contextmanager
def ascended(optimizer: Optimizer, radius: float) -> Iterator[None]:
    """Within this context the weights are those of SAM's second pass: w + radius · g / ‖g‖, with g their gradients.

    On leaving, the weights are back to the bit. Reference: Foret et al., "Sharpness-aware minimization for efficiently
    improving generalization", ICLR 2021, eq. 2.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    gradients: list[Tensor] = [p.grad for p in parameters]
    before = [p.detach().clone() for p in parameters]
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm().clamp_min(1e-12)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.add_(gradient * (radius / norm))
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, old in zip(parameters, before, strict=True):
                parameter.copy_(old)


def build_average(model: nn.Module, decay: float | None) -> AveragedModel | None:
    """An exponential moving average of weights and buffers, or None."""
    if decay is None:
        return None
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)
    return average.requires_grad_(False)


def reseed(seed: int, *position: int) -> None:
    """Seed torch's generators from the position in the training, so that no generator state need be saved.

    A linear congruential step mixes in one number after another, so neighbouring positions get unrelated seeds.
    """
    value = 0
    for part in (seed, *position):
        value = (value * 6364136223846793005 + part + 1442695040888963407) % (1 << 63)
    torch.manual_seed(value)
