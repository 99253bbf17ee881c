"""The readings that claim the paper's letter, against a reference that was written from its LaTeX alone."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from longtail.data.views import Batch
from longtail.methods import CompoundBN
from longtail.nn import CompoundBatchNorm
from tests.reference.compound_batch_norm import PaperNorm, dual_path_loss
from tests.support.small_network import COUNTS, TARGET, as_batch, network

CLASS_SETS = [0, 0, 1, 1]  # runs of their serial numbers


def small_images(dtype: torch.dtype) -> Batch:
    generator = torch.Generator().manual_seed(1)
    views = tuple(torch.randn(len(TARGET), 3, 8, 8, generator=generator).to(dtype) for _ in range(2))
    return as_batch(views, TARGET)


def as_the_paper_has_it(model: nn.Module, order: Any, lamda: float) -> nn.Module:
    """The network with a `PaperNorm` for each compound batch norm, and the ReLU that was fused into it."""
    paper = copy.deepcopy(model)
    for path, layer in list(paper.named_modules()):
        if isinstance(layer, CompoundBatchNorm):
            assert layer.weight is not None
            assert layer.bias is not None
            statistics = layer.prior, layer.running_mean, layer.running_var
            norm: nn.Module = PaperNorm(*statistics, layer.weight, layer.bias, order=order, lamda=lamda)
            parent, _, name = path.rpartition(".")
            new = nn.Sequential(norm, nn.ReLU()) if layer.activation else nn.Sequential(norm)
            setattr(paper.get_submodule(parent), name, new)
    return paper


# float64 takes the eager backend, float32 the kernel.
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-6), (torch.float32, 3e-3)])
@pytest.mark.parametrize("momentum", [0.1, 0.9])  # λ = 0.1 as torch's momentum, and literally
@pytest.mark.parametrize("reading", ["appendix", "text"])
def test_a_whole_step_is_the_papers(reading: str, momentum: float, dtype: torch.dtype, close: float) -> None:
    # Components that start equal would hide most of it.
    settings: dict[str, Any] = {
        "reading": reading,
        "momentum": momentum,
        "reading_settings": {"component_init": "random"},
    }
    method = CompoundBN(network(), COUNTS, components=2, **settings).to(dtype)
    paper = as_the_paper_has_it(method.model, reading, lamda=1 - momentum)
    batch = small_images(dtype)
    loss = method(batch).loss
    weak, strong = batch.views
    expected = dual_path_loss(paper, weak, strong, TARGET, CLASS_SETS, COUNTS)
    torch.testing.assert_close(loss, expected, rtol=close, atol=close)
    loss.backward()
    expected.backward()
    theirs = [module for module in paper.modules() if isinstance(module, PaperNorm)]
    ours = [module for module in method.modules() if isinstance(module, CompoundBatchNorm)]
    assert len(ours) == len(theirs) == 7
    for norm, reference in zip(ours, theirs, strict=True):
        assert norm.weight is not None
        assert norm.bias is not None
        for found, wanted in (
            (norm.prior, reference.prior),
            (norm.running_mean, reference.mean),
            (norm.running_var, reference.variance),
            (norm.weight.grad, reference.gamma.grad),
            (norm.bias.grad, reference.beta.grad),
        ):
            assert found is not None
            assert wanted is not None
            torch.testing.assert_close(found, wanted, rtol=close, atol=close * float(wanted.abs().max()))
    convolution, other = (
        next(module for module in model.modules() if isinstance(module, nn.Conv2d)).weight.grad
        for model in (method.model, paper)
    )
    assert convolution is not None
    assert other is not None
    torch.testing.assert_close(convolution, other, rtol=close, atol=close * float(other.abs().max()))
