"""A small method and one batch, to look at what a step of it does."""

from typing import Any, TypeVar

import torch

from longtail.data.views import Batch
from longtail.methods import Method
from longtail.models import create_model

M = TypeVar("M", bound=Method)

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 1, 2])
BATCH = Batch((torch.linspace(-1, 1, 4 * 3 * 64).reshape(4, 3, 8, 8).sin(),), TARGET, torch.arange(4))


def build(kind: type[M], **settings: Any) -> M:
    """The method around a new network, the same each time."""
    torch.manual_seed(0)
    return kind(create_model("resnet8", 3), COUNTS, **settings)


def moved_by_a_step(method: Method) -> set[str]:
    """The names of the state that a step changes."""
    before = {key: value.clone() for key, value in method.state_dict().items()}
    optimiser = torch.optim.SGD(method.parameter_groups(), lr=0.1, weight_decay=0.1)
    optimiser.zero_grad()
    method(*method.prepare(BATCH)).loss.backward()
    optimiser.step()
    method.after_step()
    return {key for key, value in method.state_dict().items() if not torch.equal(value, before[key])}
