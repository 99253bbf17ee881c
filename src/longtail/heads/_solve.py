"""Minimise a smooth function of a few tensors by L-BFGS on all images at once: no learning rate, no order, no noise."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


def minimise(objective: Callable[[], Tensor], parameters: Sequence[Tensor], *, iterations: int) -> None:
    """Change `parameters` in place until `objective()` is near its minimum.

    Stopping after some tens of iterations is deliberate: further ones cost time and fit the training images alone.
    """
    optimizer = torch.optim.LBFGS(
        list(parameters),
        max_iter=iterations,
        history_size=10,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-7,
        tolerance_change=1e-9,
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = objective()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(closure)


def fit_layer(
    layer: nn.Module,
    features: Tensor,
    loss: Callable[[Tensor], Tensor],
    *,
    weight_decay: float,
    iterations: int,
) -> nn.Module:
    """Fit a layer from features to logits: minimise loss(logits) + weight_decay / 2 · ‖weights‖², biases apart."""
    weights = [parameter for parameter in layer.parameters() if parameter.ndim > 1]

    def objective() -> Tensor:
        decay = sum((weight.square().sum() for weight in weights), start=features.new_zeros(()))
        return loss(layer(features)) + 0.5 * weight_decay * decay

    minimise(objective, list(layer.parameters()), iterations=iterations)
    return layer.requires_grad_(False).eval()


def zero_linear(in_features: int, num_classes: int) -> nn.Linear:
    """A linear layer of zeros, from which a convex problem starts."""
    layer = nn.Linear(in_features, num_classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
