"""Every registered method with its default settings, and what a step of it takes."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.methods import METHODS, Method, MethodOutput
from longtail.models import create_model

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 0, 1, 1, 2])
PROGRESS = [0.0, 0.25, 0.5, 0.75, 0.9, 1.0]

each_method = pytest.mark.parametrize("name", METHODS)


# A method that takes no convolutional network.
NETWORKS = {"lift": "test_vit"}
# Methods that mix images within the batch of a rank: two ranks equal one process once the batch is mixed.
MIXES = {"glmc", "mislas", "unimix"}


def network(name: str) -> nn.Module:
    return create_model(NETWORKS.get(name, "resnet8"), len(COUNTS), image_size=16)


def method(name: str, seed: int = 0, model: nn.Module | None = None, **settings: Any) -> Method:
    torch.manual_seed(5)  # networks of finished runs are the same whatever the seed
    networks: dict[str, Any] = {need: network(name).eval().requires_grad_(False) for need in METHODS[name].needs}
    torch.manual_seed(seed)
    return METHODS[name](model or network(name), COUNTS, **networks, **settings)


def trainable(trained: Method) -> dict[str, nn.Parameter]:
    return {key: parameter for key, parameter in trained.named_parameters() if parameter.requires_grad}


def batches(trained: Method, *, views: int | None = None, seed: int = 1) -> tuple[Batch, ...]:
    generator = torch.Generator().manual_seed(seed)
    number = len(trained.views) if views is None else views
    return tuple(
        Batch(
            tuple(torch.randn(len(TARGET), 3, 16, 16, generator=generator) for _ in range(number)),
            TARGET.roll(turn),
            torch.arange(len(TARGET)),
        )
        for turn in range(len(trained.samplers))
    )


def step(trained: Method, given: tuple[Batch, ...] | None = None) -> MethodOutput:
    torch.manual_seed(1)
    output: MethodOutput = trained(*trained.prepare(*(given or batches(trained))))
    return output


class TrainingSet:
    """What `start_epoch` looks at, on one rank."""

    def __init__(self, trained: Method) -> None:
        self.trained = trained

    def batches(self) -> Iterator[Batch]:
        yield batches(self.trained, views=1)[0]

    def sum_over_ranks(self, tensor: Tensor) -> Tensor:
        return tensor


def sgd(trained: Method) -> torch.optim.SGD:
    return torch.optim.SGD(trained.parameter_groups(), lr=0.05, momentum=0.9, weight_decay=0.01)


def assert_same_state(one: Method, other: Method) -> None:
    assert one.state_dict().keys() == other.state_dict().keys()
    for key, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[key]), key
