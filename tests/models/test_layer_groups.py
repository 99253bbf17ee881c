from itertools import pairwise
from typing import Any

import pytest
import torch
from timm.optim._param_groups import param_groups_layer_decay
from torch import Tensor, nn

from longtail.models import create_model, layer_groups
from longtail.nn import convert_batch_norm

# The groups: a stem, stages or blocks, and a head.
GROUPS = {
    "resnet20": 1 + 3 + 1,
    "resnet18": 1 + 4 + 1,
    "tf_efficientnet_lite0": 1 + 7 + 1,
    "convnext_atto": 1 + 4 + 1,
    "vit_tiny_patch16_224": 1 + 12 + 1,
}


@pytest.fixture(params=GROUPS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_each_parameter_is_in_one_group(name: str) -> None:
    model = create_model(name, 5)
    groups = layer_groups(model)
    assert len(groups) == GROUPS[name]
    assert all(groups)
    found = [id(parameter) for group in groups for parameter in group]
    assert len(found) == len(set(found))
    assert set(found) == {id(parameter) for parameter in model.parameters()}


def test_the_first_group_sees_the_image_and_the_last_is_the_head(name: str) -> None:
    model: Any = create_model(name, 5)
    first, *_, last = ([id(parameter) for parameter in group] for group in layer_groups(model))
    stem = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
    assert id(stem.weight) in first
    assert {id(parameter) for parameter in model.get_classifier().parameters()} <= set(last)


def test_groups_follow_the_way_of_an_image(name: str) -> None:
    """The layers of a group run before those of the next, as hooks see them."""
    model = create_model(name, 5, image_size=64).eval()
    order: dict[int, int] = {}

    def note(module: nn.Module, *_: object) -> None:
        for parameter in module.parameters(recurse=False):
            order.setdefault(id(parameter), len(order))

    for module in model.modules():
        module.register_forward_pre_hook(note)
    with torch.no_grad():
        model(torch.zeros(1, 3, 64, 64))
    # Parameters of modules that run others (tokens, layer scales) are noted when those begin.
    places = [[order[id(parameter)] for parameter in group if id(parameter) in order] for group in layer_groups(model)]
    for earlier, later in pairwise(places):
        assert max(earlier) < min(later)


def test_the_groups_of_a_transformer_are_those_of_timm_s_layer_decay() -> None:
    model: Any = create_model("vit_tiny_patch16_224", 5)
    expected: dict[float, set[int]] = {}
    for group in param_groups_layer_decay(model, layer_decay=0.5):
        expected.setdefault(group["lr_scale"], set()).update(id(parameter) for parameter in group["params"])
    ours = [{id(parameter) for parameter in group} for group in layer_groups(model)]
    assert ours == [expected[scale] for scale in sorted(expected)]


@pytest.mark.parametrize("name", ["resnet20", "resnet18"])
def test_converted_norms_stay_in_their_groups(name: str) -> None:
    model = create_model(name, 5)
    convert_batch_norm(model)
    groups = layer_groups(model)
    assert len(groups) == GROUPS[name]
    assert sum(len(group) for group in groups) == len(list(model.parameters()))


def test_frozen_parameters_are_in_their_groups_too() -> None:
    model = create_model("resnet18", 5).requires_grad_(False)
    assert [len(group) for group in layer_groups(model)] == [3, 12, 15, 15, 15, 2]


class Mine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 3), nn.Linear(3, 2)

    def get_classifier(self) -> nn.Module:
        return self.head

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.body(x))
        return result


def test_a_model_of_unknown_build_has_two_groups() -> None:
    model = Mine()
    body, head = layer_groups(model)
    assert body[0] is model.body.weight
    assert head[0] is model.head.weight
    assert len(body) == len(head) == 2


def test_a_model_without_a_classifier_has_one_group_less() -> None:
    model: Any = create_model("resnet20", 5)
    model.reset_classifier(0)
    assert sum(len(group) for group in layer_groups(model)) == len(list(model.parameters()))
