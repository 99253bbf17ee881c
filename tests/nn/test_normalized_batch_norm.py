import copy
from typing import cast

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import nn

from longtail.nn import NormalizedBatchNorm2d, convert_normalized_batch_norm, frozen_statistics
from tests.nn.test_convert import live

X = torch.randn(6, 5, 4, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_new_layer_is_batch_norm_in_output_and_statistics(momentum: float | None) -> None:
    plain, norm = nn.BatchNorm2d(5, momentum=momentum), NormalizedBatchNorm2d(5, momentum=momentum)
    for step in range(3):
        torch.testing.assert_close(norm(X + step), plain(X + step))
    assert plain.running_mean is not None
    torch.testing.assert_close(norm.running_mean, plain.running_mean)
    torch.testing.assert_close(norm.eval()(X), plain.eval()(X))


def test_it_is_the_equation_and_the_lengths_of_the_vectors_mean_nothing() -> None:
    torch.manual_seed(0)
    norm = NormalizedBatchNorm2d(5)
    for parameter in norm.parameters():
        nn.init.normal_(parameter) if parameter.ndim else nn.init.constant_(parameter, 1.7)
    normalised = F.batch_norm(X, None, None, training=True)
    weight, bias = (vector / vector.square().sum().sqrt() for vector in (norm.weight, norm.bias))
    expected = 1.7 * weight[:, None, None] * normalised + 1.7 * bias[:, None, None]
    torch.testing.assert_close(norm(X), expected)
    with torch.no_grad():
        norm.weight.mul_(5)
        norm.bias.mul_(0.1)
    torch.testing.assert_close(norm(X), expected)


def test_a_bias_of_zero_can_be_learned() -> None:
    norm = NormalizedBatchNorm2d(5)
    optimiser = torch.optim.SGD(norm.parameters(), lr=0.1)
    goal = torch.arange(5.0)[:, None, None]
    for _ in range(300):
        optimiser.zero_grad()
        (norm(X).mean((0, 2, 3), keepdim=True) - goal).square().sum().backward()
        optimiser.step()
    torch.testing.assert_close(norm(X).mean((0, 2, 3)), torch.arange(5.0), rtol=0.05, atol=0.1)


def test_frozen_statistics_stay() -> None:
    norm = NormalizedBatchNorm2d(5)
    before = copy.deepcopy(norm.state_dict())
    with frozen_statistics(norm):
        norm(X)
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())


@pytest.mark.parametrize("name", ["resnet18", "efficientnet_b0"])
@pytest.mark.parametrize("trained", [True, False])
def test_a_converted_model_computes_the_same(name: str, trained: bool) -> None:
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=7)
    model = (live(model) if trained else model).eval()
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = model(x)
        converted = convert_normalized_batch_norm(model)
        torch.testing.assert_close(converted(x), expected, rtol=1e-4, atol=1e-5)
    norms = [module for module in converted.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    assert all(isinstance(norm, NormalizedBatchNorm2d) and not norm.training for norm in norms)


def test_everything_is_carried() -> None:
    old = nn.BatchNorm2d(4, eps=0.1, momentum=0.3).double()
    old.weight.requires_grad_(False)
    old(torch.randn(3, 4, 2, 2, dtype=torch.float64))
    new = cast("NormalizedBatchNorm2d", convert_normalized_batch_norm(old))
    assert (new.eps, new.momentum, new.training) == (0.1, 0.3, True)
    assert [p.requires_grad for p in (new.weight, new.weight_length, new.bias, new.bias_length)] == [False] * 2 + [
        True
    ] * 2
    assert new.weight_length.dtype == torch.float64
    assert new.num_batches_tracked == 1


def test_a_norm_without_affine_vectors_is_refused_by_its_path() -> None:
    model = nn.Sequential(nn.Sequential(nn.BatchNorm2d(3, affine=False)))
    with pytest.raises(ValueError, match=r"cannot convert 0\.0 \(BatchNorm2d\): it has no affine vectors"):
        convert_normalized_batch_norm(model)
