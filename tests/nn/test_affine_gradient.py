import copy

import pytest
import torch
from torch import nn

from longtail.nn import CompoundBatchNorm2d, convert_batch_norm, scale_affine_gradients


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 3))


def _train(model: nn.Module, steps: int = 20) -> list[float]:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        images, target = torch.randn(16, 3, 6, 6, generator=generator), torch.arange(16) % 3
        loss = nn.functional.cross_entropy(model(images + target.view(-1, 1, 1, 1)), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("components", [1, 4])
def test_equal_components_learn_as_batch_norm_does(components: int) -> None:
    plain = _network()
    compound = convert_batch_norm(copy.deepcopy(plain), components)
    scale_affine_gradients(compound)
    assert _train(compound) == pytest.approx(_train(plain), rel=1e-3)
    assert isinstance(compound, nn.Sequential)
    norm, reference = compound[1], plain[1]
    for name in ("weight", "bias"):
        every = getattr(norm, name)
        torch.testing.assert_close(every, getattr(reference, name).expand_as(every), rtol=1e-3, atol=1e-4)


def test_without_it_they_fall_behind() -> None:
    plain = _network()
    compound = convert_batch_norm(copy.deepcopy(plain), 4)
    assert _train(compound) != pytest.approx(_train(plain), rel=1e-2)


def test_what_does_not_learn_is_left_alone() -> None:
    norm = CompoundBatchNorm2d(4)
    assert norm.bias is not None
    norm.bias.requires_grad_(False)
    scale_affine_gradients(nn.Sequential(norm, CompoundBatchNorm2d(4, affine=False), nn.BatchNorm2d(4)))
    norm(torch.randn(2, 4, 3, 3)).square().sum().backward()
    assert norm.bias.grad is None
