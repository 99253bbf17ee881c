"""Decoupled training on a network of seconds, by a trainer of a few lines."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.methods import Decoupled, Method
from longtail.models import create_model

COUNTS = [60, 20, 6, 2]
TARGET = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 3, 3])
EPOCHS, FIRST = 4, 2  # of the whole training and of its first stage
STATISTICS = ("running_mean", "running_var", "num_batches_tracked", "prior")


def images(method: Method, seed: int = 1) -> tuple[Batch, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        Batch(tuple(torch.randn(len(TARGET), 3, 8, 8, generator=generator) for _ in method.views), TARGET, TARGET)
        for _ in method.samplers
    )


def network() -> nn.Module:
    torch.manual_seed(0)
    return create_model("resnet8", len(COUNTS))


def two_stages(**settings: Any) -> Decoupled:
    return Decoupled(network(), COUNTS, representation_share=FIRST / EPOCHS, **settings)


def sgd(method: Method) -> torch.optim.SGD:
    return torch.optim.SGD(method.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)


def train(
    method: Method, optimiser: torch.optim.Optimizer, epochs: Sequence[int], of: int | None = None
) -> list[float]:
    """Some of the epochs, two steps each, by a trainer that sets gradients to zero instead of removing them."""
    losses = []
    for epoch in epochs:
        method.set_progress(epoch / (of or EPOCHS))
        method.train()
        for step in range(2):
            loss = method(*images(method, seed=10 * epoch + step)).loss
            optimiser.zero_grad(set_to_none=False)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        method.eval()
        method.model(images(method)[0].views[0])
    return losses


def changed(method: Method, before: dict[str, Tensor]) -> set[str]:
    return {name for name, value in method.state_dict().items() if not torch.equal(value, before[name])}
