import copy
from typing import cast

import pytest
import timm
import torch
from torch import Tensor, nn

from longtail.nn import ModeNorm2d, convert_mode_norm, frozen_statistics
from tests.nn.test_convert import live


def images(seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    x = torch.randn(6, 5, 4, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (2 * x + torch.arange(5.0)[:, None, None]).to(dtype)


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("affine", [True, False])
def test_one_mode_is_batch_norm(momentum: float | None, affine: bool) -> None:
    plain = nn.BatchNorm2d(5, momentum=momentum, affine=affine)
    norm = ModeNorm2d(5, 1, momentum=momentum, affine=affine)
    for step in range(3):
        one, other = (images(step).requires_grad_() for _ in range(2))
        expected, found = plain(one), norm(other)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        factors = torch.randn(expected.shape, generator=torch.Generator().manual_seed(9))
        (expected * factors).sum().backward()
        (found * factors).sum().backward()
        torch.testing.assert_close(other.grad, one.grad, rtol=1e-3, atol=1e-4)
    assert plain.running_mean is not None
    assert plain.running_var is not None
    torch.testing.assert_close(norm.running_mean[0], plain.running_mean)
    torch.testing.assert_close(norm.running_var[0], plain.running_var)
    torch.testing.assert_close(norm.eval()(images(7)), plain.eval()(images(7)), rtol=1e-4, atol=1e-5)


def test_several_modes_are_the_loops_of_the_equation() -> None:
    torch.manual_seed(0)
    norm = ModeNorm2d(5, 3, dtype=torch.float64)
    nn.init.normal_(norm.gate_weight)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x = images(dtype=torch.float64)
    gates = torch.softmax(x.mean((2, 3)) @ norm.gate_weight.T + norm.gate_bias, dim=1)
    expected = torch.zeros_like(x)
    for k in range(3):
        mean, variance = torch.zeros(5, dtype=torch.float64), torch.zeros(5, dtype=torch.float64)
        for n in range(6):
            mean = mean + gates[n, k] * x[n].mean((1, 2)) / gates[:, k].sum()
        for n in range(6):
            squares = (x[n] - mean[:, None, None]) ** 2
            variance = variance + gates[n, k] * squares.mean((1, 2)) / gates[:, k].sum()
        normalised = (x - mean[:, None, None]) / (variance + norm.eps).sqrt()[:, None, None]
        expected = expected + gates[:, k, None, None, None] * normalised
    expected = expected * norm.weight[:, None, None] + norm.bias[:, None, None]
    torch.testing.assert_close(norm(x), expected)


def test_gradcheck_through_gates_and_statistics() -> None:
    torch.manual_seed(0)
    norm = ModeNorm2d(2, 2, dtype=torch.float64)
    nn.init.normal_(norm.gate_weight)
    x = torch.randn(3, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: norm(x), (x, *norm.parameters()))


def test_eval_does_not_depend_on_the_batch_and_the_order_of_the_modes() -> None:
    torch.manual_seed(0)
    norm = ModeNorm2d(5, 3)
    nn.init.normal_(norm.gate_weight)
    for step in range(4):
        norm(images(step))
    x, norm = images(9), norm.eval()
    torch.testing.assert_close(torch.cat([norm(image[None]) for image in x]), norm(x))
    turned, order = copy.deepcopy(norm), [2, 0, 1]
    for name in ("gate_weight", "gate_bias", "running_mean", "running_var"):
        getattr(turned, name).data = getattr(norm, name).data[order]
    torch.testing.assert_close(turned(x), norm(x))


def test_frozen_statistics_stay() -> None:
    norm = ModeNorm2d(5)
    before = copy.deepcopy(norm.state_dict())
    with frozen_statistics(norm):
        norm(images())
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())


@pytest.mark.parametrize("scale", [1e-6, 1e4])
def test_extreme_scales_a_constant_channel_and_half_precision_are_finite(scale: float) -> None:
    norm = ModeNorm2d(5)
    x = (images() * scale).index_fill(1, torch.tensor(2), scale).requires_grad_()
    norm(x).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert norm(images().bfloat16()).isfinite().all()


@pytest.mark.parametrize("name", ["resnet18", "efficientnet_b0"])
def test_a_converted_model_computes_the_same_in_eval(name: str) -> None:
    torch.manual_seed(0)
    model = live(timm.create_model(name, num_classes=7)).eval()
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = model(x)
        converted = convert_mode_norm(model, 3)
        torch.testing.assert_close(converted(x), expected, rtol=1e-4, atol=1e-5)
    norms = [module for module in converted.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    assert norms
    assert all(isinstance(norm, ModeNorm2d) and not norm.training for norm in norms)


def test_everything_is_carried() -> None:
    old = nn.BatchNorm2d(4, eps=0.1, momentum=0.3).double()
    old.weight.requires_grad_(False)
    old(torch.randn(3, 4, 2, 2, dtype=torch.float64))
    new = cast("ModeNorm2d", convert_mode_norm(old))
    assert (new.eps, new.momentum, new.training, new.weight.requires_grad) == (0.1, 0.3, True, False)
    assert new.weight.dtype == new.running_mean.dtype == torch.float64
    assert new.num_batches_tracked == 1


def test_what_cannot_be_converted_is_named_and_the_model_left_as_it_was() -> None:
    class Own(nn.BatchNorm2d):
        pass

    for odd, reason in (
        (Own(3), "only BatchNorm2d and timm's BatchNormAct2d are known here"),
        (nn.BatchNorm1d(3), "only BatchNorm2d"),
        (nn.BatchNorm2d(3, track_running_stats=False), "it tracks no running statistics"),
    ):
        model = nn.Sequential(nn.BatchNorm2d(3), nn.Sequential(odd))
        with pytest.raises(ValueError, match=rf"cannot convert 1\.0 \({type(odd).__name__}\): {reason}"):
            convert_mode_norm(model)
        assert type(model[0]) is nn.BatchNorm2d
    with pytest.raises(ValueError, match="model must have a batch norm to convert, got none in Linear"):
        convert_mode_norm(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="modes must be at least 1 and at most 1,024, got 0"):
        ModeNorm2d(4, 0)
