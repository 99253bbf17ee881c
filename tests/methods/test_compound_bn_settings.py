from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from longtail.methods import CompoundBN, Decoupled
from longtail.nn import (
    CompoundBatchNorm,
    class_groups,
    convert_batch_norm,
)
from tests.methods.small import BASELINE, CBN, COUNTS, SBN, TARGET, Images, images, network, norms


@pytest.mark.parametrize(
    ("reading", "split", "expected"),
    [("measured", True, "random"), ("measured", False, "random"), ("paper", True, "equal"), ("paper", False, "random")],
)
def test_components_start_apart_where_no_split_path_parts_them(reading: Any, split: bool, expected: str) -> None:
    model = CompoundBN(network(), COUNTS, reading=reading, split=split, dual_path=False).model
    found = {layer.component_init for layer in model.modules() if isinstance(layer, CompoundBatchNorm)}
    assert found == {expected}


def test_settings_reach_every_layer() -> None:
    trained = CompoundBN(
        network(),
        COUNTS,
        components=3,
        statistics="running",
        momentum=0.25,
        temperature="channels",
        detach_responsibilities=True,
        component_init="random",
        group_scheme="interleaved",
    )
    layers = [layer for layer in trained.modules() if isinstance(layer, CompoundBatchNorm)]
    assert len(layers) == 7
    for layer in layers:
        assert (layer.components, layer.statistics, layer.momentum) == (3, "running", 0.25)
        assert (layer.temperature, layer.detach_responsibilities) == ("channels", True)
        assert layer.component_init == "random"
    assert trained.groups.tolist() == [0, 1, 2, 0]


def test_without_a_momentum_each_layer_keeps_its_batch_norm_s() -> None:
    model = network()
    for i, module in enumerate(module for module in model.modules() if isinstance(module, nn.BatchNorm2d)):
        module.momentum = i / 10
    CompoundBN(model, COUNTS)
    assert [layer.momentum for layer in model.modules() if isinstance(layer, CompoundBatchNorm)] == [
        i / 10 for i in range(7)
    ]


def test_only_the_named_layers_are_converted() -> None:
    model = CompoundBN(network(), COUNTS, layers=["stage3", "stage2.0.norm1"]).model
    converted = [path for path, module in model.named_modules() if isinstance(module, CompoundBatchNorm)]
    assert converted == ["stage2.0.norm1", "stage3.0.norm1", "stage3.0.norm2"]


def test_it_trains_a_timm_model() -> None:
    torch.manual_seed(0)
    trained = CompoundBN(timm.create_model("resnet10t", num_classes=len(COUNTS)), COUNTS, components=2)
    generator = torch.Generator().manual_seed(1)
    views = tuple(torch.randn(len(TARGET), 3, 32, 32, generator=generator) for _ in range(2))
    trained(Images(views, TARGET)).loss.backward()
    assert all(parameter.grad is not None for parameter in trained.parameters())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"compound": False}, r"dual_path needs compound and split, got compound=False and split=True"),
        ({"split": False}, r"dual_path needs compound and split, .* split=False \(turn dual_path off\)"),
        (CBN | {"split_loss_weight": 1.0}, "split_loss_weight .* needs compound and split"),
        ({"split_loss_weight": -1.0}, "split_loss_weight must be a finite number of zero or more, got -1"),
        ({"similarity_weight": 0.0}, r"similarity_weight must be positive and finite, got 0\.0 .*turn dual_path off"),
        ({"start": 1.0}, r"start must be at least 0 and less than 1, got 1\.0"),
        ({"start": 0.5, "component_init": "random"}, "start defers the split path .* component_init='random'"),
        (CBN | {"start": 0.5, "component_init": "equal"}, "start defers the split path .* split=False"),
        (SBN | {"update_on_split": False}, "update_on_split=False needs compound"),
        ({"layers": ["stage9"]}, "layers must be paths of modules with batch norms, got 'stage9'; the model has norm,"),
        ({"reading": "mine"}, "reading must be one of measured, paper, got 'mine'"),
        ({"momentum": 2.0}, r"momentum must be None or between 0 and 1, got 2\.0"),
        ({"loss_settings": {"reduction": "none"}}, "loss_settings must not set reduction to 'none'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CompoundBN(network(), COUNTS, **settings)


def test_the_papers_letter_is_one_argument_away() -> None:
    literal = CompoundBN(network(), COUNTS, reading="paper", components=2)
    assert torch.equal(literal.groups, class_groups(4, 2, "contiguous"))
    assert literal.update_on_split
    assert {(norm.statistics, norm.momentum, norm.temperature) for norm in norms(literal)} == {("running", 0.9, 1.0)}
    assert not any(norm.detach_responsibilities for norm in norms(literal))
    assert literal.departures == ()


def test_an_argument_goes_before_the_reading() -> None:
    built = CompoundBN(network(), COUNTS, reading="paper", statistics="batch", momentum=0.2, components=2)
    assert {(norm.statistics, norm.momentum, norm.temperature) for norm in norms(built)} == {("batch", 0.2, 1.0)}
    assert built.departures == ("statistics is batch, the paper's running", "momentum is 0.2, the paper's 0.9")


def test_what_departs_from_the_paper_is_said() -> None:
    departures = CompoundBN(network(), COUNTS).departures
    assert "momentum is each batch norm's own, the paper's 0.9" in departures
    assert "detach_responsibilities is true, the paper's false" in departures
    assert "component_init is random, the paper's equal" in departures
    assert not any("component_init" in said for said in CompoundBN(network(), COUNTS, **CBN).departures)
    assert CompoundBN(network(), COUNTS, **BASELINE).departures == ()
    changed = CompoundBN(network(), COUNTS, reading="paper", temperature="channels", split_loss_weight=1.0)
    assert changed.departures == (
        "temperature is channels, the paper's 1.0",
        "split_loss_weight is 1.0, the paper's 0.0",
    )
    assert Decoupled(network(), COUNTS, base="compound_bn").departures == departures


def test_what_makes_no_difference_is_no_departure() -> None:
    said = " ".join(CompoundBN(network(), COUNTS, **CBN).departures)
    assert "statistics is batch" in said
    assert "group_scheme" not in said
    assert "update_on_split" not in said
    said = " ".join(CompoundBN(network(), COUNTS, components=1).departures)
    assert "update_on_split" in said
    assert "component_init" not in said
    assert "group_scheme" not in said


def test_affine_gradients_are_scaled_unless_the_paper_is_read_to_the_letter() -> None:
    def gradient(**settings: Any) -> Tensor:
        built = CompoundBN(network(), COUNTS, components=3, **CBN, component_init="equal", **settings)
        built(images()).loss.backward()
        weight = norms(built)[0].weight
        assert weight is not None
        assert weight.grad is not None
        return weight.grad

    plain = CompoundBN(network(), COUNTS, **BASELINE)
    plain(images()).loss.backward()
    expected = next(norm for norm in plain.model.modules() if isinstance(norm, nn.BatchNorm2d)).weight.grad
    assert expected is not None
    torch.testing.assert_close(gradient(), expected.expand(3, -1), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(gradient(scale_affine=False), expected.expand(3, -1) / 3, rtol=1e-3, atol=1e-5)


def test_a_row_with_the_split_path_alone_updates_by_it_whatever_the_reading() -> None:
    assert CompoundBN(network(), COUNTS, **SBN).update_on_split


def test_a_model_that_is_compound_already_is_refused() -> None:
    with pytest.raises(ValueError, match="model must have a batch norm to convert"):
        CompoundBN(convert_batch_norm(network()), COUNTS)
