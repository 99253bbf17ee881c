import copy
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn

from longtail.nn import CompoundBatchNorm2d, convert_batch_norm, split_path
from tests.support.plain_reading import plain


def model(**options: Any) -> nn.Sequential:
    torch.manual_seed(0)
    options = dict(options)
    fields = {"component_init": "random", **options.pop("fields", {})}
    norm = CompoundBatchNorm2d(6, 3, reading=plain(**fields), **options)
    behind = nn.Identity() if "activation" in options else nn.ReLU(inplace=True)
    return nn.Sequential(nn.Conv2d(3, 6, 3), norm, behind)


@pytest.mark.parametrize(
    ("options", "backend"),
    [
        ({}, "inductor"),
        ({"momentum": None}, "aot_eager"),
        ({"fields": {"statistics": "running"}, "affine": False}, "aot_eager"),
        ({"fields": {"statistics": "updated"}}, "aot_eager"),
        ({"fields": {"statistics": "updated", "min_mass": 0.0}, "momentum": None}, "inductor"),
        ({"fields": {"detach_responsibilities": True, "scale_affine": True, "update_on_split": False}}, "aot_eager"),
        ({"activation": "relu"}, "aot_eager"),
    ],
)
def test_compiled_in_one_graph_equals_eager(options: dict[str, Any], backend: str) -> None:
    torch._dynamo.reset()
    eager, net = model(**options), model(**options)
    compiled = torch.compile(net, fullgraph=True, backend=backend)
    groups = torch.tensor([0, 1, 2, 1])
    for _ in range(2):
        x = torch.randn(4, 3, 8, 8)
        y, expected = compiled(x), eager(x)
        with split_path(net, groups):
            y = y + compiled(x)
        with split_path(eager, groups):
            expected = expected + eager(x)
        torch.testing.assert_close(y, expected)
        y.square().sum().backward()
        expected.square().sum().backward()
    for (name, parameter), other in zip(net.named_parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-4, atol=1e-4, msg=name)
    for (name, buffer), theirs in zip(net.named_buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(buffer, theirs, msg=name)
    net.eval()
    torch.testing.assert_close(compiled(x), eager.eval()(x))


@pytest.mark.parametrize("options", [{}, {"activation": "relu"}])
def test_onnx_equals_torch_at_any_batch_size(options: dict[str, Any], tmp_path: Path) -> None:
    net = model(**options).eval()
    path = tmp_path / "model.onnx"
    with torch.no_grad():
        example = torch.randn(2, 3, 8, 8)
        torch.onnx.export(net, (example,), path, dynamo=True, dynamic_shapes=({0: "batch"},), verbose=False)
        session = onnxruntime.InferenceSession(path)
        for size in (1, 2, 7):
            x = torch.randn(size, 3, 8, 8)
            (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
            torch.testing.assert_close(torch.from_numpy(y), net(x), rtol=1e-4, atol=1e-5)


def test_a_converted_model_exports() -> None:
    net = convert_batch_norm(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())).eval()
    program = torch.export.export(net, (torch.randn(2, 3, 6, 6),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    x = torch.randn(5, 3, 6, 6)
    torch.testing.assert_close(program.module()(x), net(x))


def test_a_copy_of_a_layer_is_its_own() -> None:
    net = model()
    other = copy.deepcopy(net)
    other(torch.randn(4, 3, 8, 8))
    assert not net.get_buffer("1.num_batches_tracked")
