import copy

import pytest
import timm
import torch
from torch import Tensor, nn

from longtail.nn import CompoundBatchNorm2d, convert_batch_norm, frozen_statistics, split_path
from tests.support.plain_reading import plain

GROUPS = torch.tensor([0, 1, 1, 0])


def small_model() -> nn.Sequential:
    torch.manual_seed(0)
    compound = CompoundBatchNorm2d(6, 2, reading=plain(component_init="random"))
    return nn.Sequential(nn.Conv2d(3, 6, 3), compound, nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6))


def buffers(model: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


def changed(model: nn.Module, before: dict[str, Tensor]) -> set[str]:
    return {name for name, buffer in model.named_buffers() if not torch.equal(buffer, before[name])}


def images() -> Tensor:
    return torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("split", [False, True])
def test_the_output_is_that_of_training_and_the_buffers_stay(split: bool) -> None:
    model, usual = small_model(), small_model()
    before = buffers(model)
    with frozen_statistics(model):
        if split:
            with split_path(model, GROUPS), split_path(usual, GROUPS):
                y, expected = model(images()), usual(images())
        else:
            y, expected = model(images()), usual(images())
    assert torch.equal(y, expected)
    assert changed(model, before) == set()
    assert {"1.running_mean", "3.running_mean", "3.num_batches_tracked"} <= changed(usual, before)


def test_gradients_are_those_of_training() -> None:
    model, usual = small_model(), small_model()
    with frozen_statistics(model):
        model(images()).square().sum().backward()
    usual(images()).square().sum().backward()
    for parameter, other in zip(model.parameters(), usual.parameters(), strict=True):
        assert parameter.grad is not None
        assert other.grad is not None
        assert torch.equal(parameter.grad, other.grad)


def test_it_may_stand_inside_the_split_path_too() -> None:
    model, usual = small_model(), small_model()
    before = buffers(model)
    with split_path(model, GROUPS):
        with frozen_statistics(model):
            y = model(images())
        assert changed(model, before) == set()
        model(images())
    assert "1.running_mean" in changed(model, before)
    with split_path(usual, GROUPS):
        assert torch.equal(y, usual(images()))


def test_contexts_nest_and_are_restored_after_an_exception() -> None:
    model = small_model()
    before = buffers(model)
    with frozen_statistics(model):
        with frozen_statistics(model):
            pass
        with pytest.raises(ValueError, match="4-D input"), frozen_statistics(model):
            model[1](torch.zeros(3))
        model(images())
        assert changed(model, before) == set()
    model(images())
    assert "1.running_mean" in changed(model, before)


def test_eval_is_as_ever() -> None:
    model = small_model().eval()
    with frozen_statistics(model):
        assert torch.equal(model(images()), copy.deepcopy(model)(images()))


def test_it_reaches_every_batch_norm_of_a_timm_model_converted_in_part() -> None:
    model = timm.create_model("efficientnet_b0", num_classes=2)
    convert_batch_norm(model, 2, select=lambda path, _: path.startswith("blocks.6"))
    before = buffers(model)
    with frozen_statistics(model):
        model(torch.randn(2, 3, 32, 32))
    assert changed(model, before) == set()


def test_compiles_in_one_graph() -> None:
    torch._dynamo.reset()
    model, eager = small_model(), small_model()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        with frozen_statistics(model), frozen_statistics(eager):
            torch.testing.assert_close(compiled(images()), eager(images()))
        torch.testing.assert_close(compiled(images()), eager(images()))
    for name, buffer in eager.named_buffers():
        torch.testing.assert_close(model.get_buffer(name), buffer, msg=name)
