"""A small network and its batches, for the tests of compound batch norm."""

from typing import Any

import torch
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.methods import CompoundBN
from longtail.models import create_model
from longtail.nn import CompoundBatchNorm, class_groups

COUNTS = [60, 20, 6, 2]
TARGET = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 3, 3])
GROUPS = class_groups(4, 2, "contiguous")[TARGET]

# Batch norm's statistics, and the paper's letter otherwise.
PLAIN: dict[str, Any] = {"reading": "appendix", "reading_settings": {"statistics": "batch", "min_mass": 2.0}}


def as_batch(views: tuple[Tensor, ...], target: Tensor) -> Batch:
    return Batch(views, target, torch.arange(len(target)))


def images(views: int = 1, seed: int = 1) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    batch = tuple(torch.randn(len(TARGET), 3, 12, 12, generator=generator) for _ in range(views))
    return as_batch(batch, TARGET)


def network() -> nn.Module:
    torch.manual_seed(0)
    return create_model("resnet8", len(COUNTS))


def norms(built: CompoundBN) -> list[CompoundBatchNorm]:
    return [module for module in built.model.modules() if isinstance(module, CompoundBatchNorm)]
