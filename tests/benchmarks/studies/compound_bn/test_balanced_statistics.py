"""Batch norm with weighted samples."""

import pytest
import torch
from torch import nn

from benchmarks.studies.compound_bn.balanced_statistics import WeightedBatchNorm2d


def _gradient(norm: nn.Module, x: torch.Tensor, repeat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.clone().requires_grad_()
    y = norm(x.repeat_interleave(repeat, 0))
    (y * torch.arange(y.numel()).view_as(y).sin()).sum().backward()
    assert x.grad is not None
    return y.detach(), x.grad


def test_equal_weights_are_batch_norm() -> None:
    torch.manual_seed(0)
    x, one = torch.randn(6, 3, 4, 4), torch.ones(6, dtype=torch.long)
    weighted, plain = WeightedBatchNorm2d(3), nn.BatchNorm2d(3)
    weighted.weights = torch.full((6,), 7.0)
    for ours, theirs in zip(_gradient(weighted, x, one), _gradient(plain, x, one), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(weighted.running_mean, plain.running_mean)


@pytest.mark.parametrize("power", [1, 3])
def test_a_weight_counts_like_so_many_copies(power: int) -> None:
    torch.manual_seed(0)
    x, copies = torch.randn(4, 3, 2, 2), torch.tensor([1, 1, power, 2])
    weighted, plain = WeightedBatchNorm2d(3), nn.BatchNorm2d(3)
    weighted.weights = copies.float()
    first = torch.tensor([0, 1, 2, 2 + power])  # of the copies of each
    torch.testing.assert_close(weighted(x), plain(x.repeat_interleave(copies, 0))[first], atol=1e-5, rtol=1e-5)
