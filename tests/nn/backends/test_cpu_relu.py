"""ReLU within the compiled kernel against `torch.relu` behind the layer: values, gradients and statistics."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from longtail.nn import CompoundBatchNorm1d, CompoundBatchNorm2d, CompoundBatchNorm3d, split_path
from longtail.nn.backends.cpu.backend import CpuBackend
from longtail.nn.backends.cpu.library import load
from tests.support.plain_reading import plain

pytestmark = pytest.mark.skipif(load() is None, reason="the kernels are turned off or were not built")

LAYERS = {2: CompoundBatchNorm1d, 3: CompoundBatchNorm1d, 4: CompoundBatchNorm2d, 5: CompoundBatchNorm3d}
SHAPES = [(1, 3, 5, 5), (63, 50, 1, 1), (2, 2048, 2, 3), (9, 16, 9, 7), (70, 24), (5, 40, 3), (3, 12, 2, 3, 5)]
COMPONENTS = 3


def outcome(x: Tensor, layout: str, mode: str, *, fused: bool, dtype: torch.dtype, **fields: Any) -> dict[str, Tensor]:
    """Everything that comes of a step of a layer with its ReLU within, or behind it."""
    torch.manual_seed(0)
    reading = plain(component_init="random", **fields)
    norm = LAYERS[x.dim()](x.shape[1], COMPONENTS, activation="relu" if fused else None, reading=reading)
    norm.running_mean *= x.shape[1] ** -0.5
    norm = norm.to(dtype).train(mode != "eval")
    x = x.to(dtype)
    x = (x.movedim(1, -1).contiguous().movedim(-1, 1) if layout == "channels_last" else x.clone()).requires_grad_()
    if mode == "split":
        with split_path(norm, torch.arange(len(x)) % COMPONENTS):
            y = norm(x)
    else:
        y = norm(x)
    if not fused:
        y = torch.relu(y)
    if fused and dtype == torch.float32:
        node: Any = y.grad_fn
        assert node.backend is CpuBackend
    assert y.stride() == x.stride()
    y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(9)).to(dtype))
    assert x.grad is not None
    gradients = {f"gradient of {name}": p.grad for name, p in norm.named_parameters() if p.grad is not None}
    assert len(gradients) == 2
    return {"y": y.detach(), "gradient of x": x.grad, **norm.state_dict(), **gradients}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", ["channels_last", "contiguous"])
@pytest.mark.parametrize("mode", ["batch", "running", "updated", "split", "eval"])
def test_equals_relu_behind_the_layer_to_the_bit(shape: tuple[int, ...], layout: str, mode: str) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    statistics = mode if mode in ("running", "updated") else "batch"
    found, expected = (
        outcome(x, layout, mode, fused=fused, dtype=torch.float32, statistics=statistics) for fused in (True, False)
    )
    assert (found["y"] == 0).any()
    assert (found["y"] > 0).any()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("mode", ["batch", "split", "eval"])
def test_equals_the_eager_path(fused: bool, mode: str) -> None:
    x = torch.randn(7, 10, 3, 5, generator=torch.Generator().manual_seed(1))
    found = outcome(x, "channels_last", mode, fused=True, dtype=torch.float32)
    for name, expected in outcome(x, "channels_last", mode, fused=fused, dtype=torch.float64).items():
        torch.testing.assert_close(found[name].double(), expected.double(), rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.filterwarnings("ignore:.*NaN or infinity")
@pytest.mark.parametrize("layout", ["channels_last", "contiguous"])
@pytest.mark.parametrize("statistics", ["batch", "running"])
def test_nan_goes_through_both_ways_as_in_torch(layout: str, statistics: str) -> None:
    x = torch.randn(6, 16, 4, 4, generator=torch.Generator().manual_seed(1))
    x[1, 3, 2, 2], x[4, 5, 0, 1] = torch.nan, torch.inf
    found, expected = (
        outcome(x, layout, statistics, fused=fused, dtype=torch.float32, statistics=statistics)
        for fused in (True, False)
    )
    assert found["y"].isnan().any()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0, equal_nan=True, msg=name)


def test_gradients_of_any_strides_are_taken() -> None:
    x = torch.randn(4, 8, 5, 9).requires_grad_()
    norm = CompoundBatchNorm2d(8, COMPONENTS, activation="relu")
    plain = copy.deepcopy(norm)
    plain.activation = None
    y, expected = norm(x), torch.relu(plain(x))
    for direction in (
        torch.randn(4, 8, 5, 9).to(memory_format=torch.channels_last),
        torch.randn(1).expand(4, 8, 5, 9),
        torch.randn(4, 8, 9, 5).mT,
    ):
        ours, theirs = (torch.autograd.grad(out, x, direction, retain_graph=True)[0] for out in (y, expected))
        assert torch.equal(ours, theirs)


def test_changing_the_output_in_place_is_refused_by_the_backward_pass() -> None:
    y = CompoundBatchNorm2d(8, activation="relu")(torch.randn(4, 8, 3, 3))
    y += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
