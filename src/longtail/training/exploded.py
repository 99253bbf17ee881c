"""The soundness of gradients and weights: finite, and of a size that a network can have.

A loss can stay finite for a while, behind normalisation, when the weights have left every useful range.
"""

import torch
from torch import nn

# No weight of a network that learns is larger; float32 loses every small step beside it.
LARGEST = 1e6


def gradient_norm(module: nn.Module) -> float:
    """The Euclidean norm of all gradients; not finite if any of them is not."""
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    return float(nn.utils.get_total_norm(gradients))


def exploded(module: nn.Module) -> str | None:
    """What is wrong with the first weight that is not sound; None if all are.

    Buffers need only be finite: a variance may be large.
    """
    for name, weight in module.named_parameters():
        largest = float(weight.detach().abs().max()) if weight.numel() else 0.0
        if not largest <= LARGEST:  # NaN too
            return f"the weights explode: {name} reaches {largest:.3g}"
    for name, tensor in module.named_buffers():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            return f"the statistics explode: {name} is not finite"
    return None
