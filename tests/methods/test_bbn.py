import copy
from typing import cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.methods import BBN
from longtail.methods.base import HeadedModel
from longtail.methods.bbn import BilateralModel
from longtail.models import create_model

COUNTS = [40, 10, 2]
COMMON = Batch((torch.linspace(-1, 1, 4 * 3 * 64).reshape(4, 3, 8, 8),), torch.tensor([0, 0, 0, 1]), torch.arange(4))
RARE = Batch(
    (torch.linspace(2, -1, 4 * 3 * 64).reshape(4, 3, 8, 8).sin(),), torch.tensor([2, 1, 2, 0]), torch.arange(4)
)


def bbn(name: str = "resnet14") -> BBN:
    torch.manual_seed(0)
    return BBN(create_model(name, 3), COUNTS)


def own_features(method: BBN, block: nn.Module, images: Tensor) -> Tensor:
    """By a network of the usual form whose last block is that of a branch."""
    model = create_model("resnet14", 3)
    trunk = list(method.model.trunk)
    model.conv, model.norm, model.act = trunk[:3]
    model.stage1, model.stage2 = nn.Sequential(*trunk[3:5]), nn.Sequential(*trunk[5:7])
    model.stage3 = nn.Sequential(trunk[7], block)
    return cast("HeadedModel", model.train(method.training)).forward_features(images)


@pytest.mark.parametrize("progress", [0.0, 0.3, 0.5, 1.0])
def test_the_loss_is_that_of_the_paper_s_equations(progress: float) -> None:
    method = bbn().eval()  # running statistics, so that the order of passes does not matter
    method.set_progress(progress)
    output = method(COMMON, RARE)
    alpha = 1 - progress**2
    f_c = own_features(method, method.model.conventional, COMMON.views[0])
    f_r = own_features(method, method.model.rebalancing, RARE.views[0])
    weight, bias = method.model.get_parameter("classifier.weight"), method.model.get_parameter("classifier.bias")
    logits = 2 * alpha * f_c @ weight[:, :64].T + 2 * (1 - alpha) * f_r @ weight[:, 64:].T + bias
    torch.testing.assert_close(output.logits, logits.detach())
    conventional, rebalancing = F.cross_entropy(logits, COMMON.target), F.cross_entropy(logits, RARE.target)
    torch.testing.assert_close(output.loss, alpha * conventional + (1 - alpha) * rebalancing)
    torch.testing.assert_close(output.parts["rebalancing"], (1 - alpha) * rebalancing.detach())


def test_the_deployed_model_weighs_both_branches_equally() -> None:
    method = bbn().eval()
    method.set_progress(0.5**0.5)  # α = 1/2
    torch.testing.assert_close(method.model(COMMON.views[0]).detach(), method(COMMON, COMMON).logits)


def test_at_first_only_the_conventional_branch_learns_and_at_last_only_the_other() -> None:
    method = bbn()
    for progress, still in ((0.0, method.model.rebalancing), (1.0, method.model.conventional)):
        method.zero_grad()
        method.set_progress(progress)
        method(COMMON, RARE).loss.backward()
        assert all(parameter.grad is not None and not parameter.grad.any() for parameter in still.parameters())


def test_only_the_last_block_and_the_classifier_are_new() -> None:
    model = create_model("resnet14", 3)
    before = sum(parameter.numel() for parameter in model.parameters())
    last = sum(parameter.numel() for parameter in model.get_submodule("stage3.1").parameters())
    after = sum(parameter.numel() for parameter in BilateralModel(model).parameters())
    assert after - before == last + 3 * 64


def test_both_branches_start_as_the_model_s_last_block() -> None:
    model = create_model("resnet14", 3)
    last = copy.deepcopy(model.get_submodule("stage3.1").state_dict())
    built = BilateralModel(model)
    for block in (built.conventional, built.rebalancing):
        assert all(torch.equal(value, last[key]) for key, value in block.state_dict().items())


@pytest.mark.parametrize("name", ["resnet10t", "tf_efficientnet_lite0"])
def test_takes_a_model_of_timm(name: str) -> None:
    method = bbn(name)
    images = torch.randn(4, 3, 32, 32)
    batch = Batch((images,), COMMON.target, COMMON.indices)
    method.set_progress(0.5)
    method(batch, batch).loss.backward()
    assert all(parameter.grad is not None for parameter in method.parameters())


def test_a_model_whose_last_block_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="model must be a network whose last stage is known, got Sequential"):
        BBN(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), COUNTS)
