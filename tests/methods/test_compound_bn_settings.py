import dataclasses
from typing import Any

import pytest
import timm
import torch
import yaml
from torch import Tensor, nn

from longtail.methods import CompoundBN
from longtail.methods._row_reading import ROW_PATHS
from longtail.nn import READINGS, CompoundBatchNorm, Reading, class_groups, convert_batch_norm
from tests.support.small_network import COUNTS, TARGET, as_batch, images, network, norms


@pytest.mark.parametrize(
    ("reading", "row", "expected"),
    [
        ("measured", "cbn_sbn", "random"),
        ("measured", "cbn", "random"),
        ("text", "cbn_sbn", "equal"),
        ("text", "cbn", "random"),
        ("appendix", "sbn", "equal"),
        ("appendix", "cbn", "random"),
    ],
)
def test_components_start_apart_where_no_split_path_parts_them(reading: str, row: str, expected: str) -> None:
    built = CompoundBN(network(), COUNTS, reading=reading, row=row)
    assert {layer.reading.component_init for layer in norms(built)} == {expected}


@pytest.mark.parametrize("row", ROW_PATHS)
@pytest.mark.parametrize("reading", READINGS)
def test_settings_are_complete_and_build_the_same_again(row: str, reading: str) -> None:
    built = CompoundBN(
        network(), COUNTS, row=row, reading=reading, layers=["stage3"], reading_settings={"min_mass": 1.0}
    )
    settings = built.settings()
    assert yaml.safe_load(yaml.safe_dump(settings)) == settings
    again = CompoundBN(network(), COUNTS, **settings)
    assert again.settings() == settings
    assert again.departures == built.departures
    assert [norm.reading for norm in norms(again)] == [norm.reading for norm in norms(built)]
    assert settings["reading_settings"].keys() | {"momentum"} == {field.name for field in dataclasses.fields(Reading)}


def test_settings_reach_every_layer() -> None:
    norm: dict[str, Any] = {"statistics": "running", "component_init": "equal", "group_scheme": "contiguous"}
    trained = CompoundBN(network(), COUNTS, components=3, momentum=0.25, reading_settings=norm)
    layers = norms(trained)
    assert len(layers) == 7
    for layer in layers:
        assert (layer.components, layer.momentum) == (3, 0.25)
        assert layer.reading == dataclasses.replace(READINGS["measured"], momentum=0.25, **norm)
    assert trained.groups.tolist() == [0, 0, 1, 2]


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
    trained(as_batch(views, TARGET)).loss.backward()
    assert all(parameter.grad is not None for parameter in trained.parameters())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"row": "dpl"}, "row must be one of baseline, sbn, cbn, cbn_sbn, cbn_sbn_dpl, got 'dpl'"),
        ({"row": "cbn", "split_loss_weight": 1.0}, "split_loss_weight .* needs the row .* in the row 'cbn'"),
        ({"split_loss_weight": -1.0}, "split_loss_weight must be a finite number of zero or more, got -1"),
        ({"similarity_weight": 0.0}, r"similarity_weight must be positive and finite, got 0\.0 .*row 'cbn_sbn'"),
        (
            {"row": "sbn", "reading_settings": {"update_on_split": False}},
            "reading_settings must not set update_on_split to false",
        ),
        (
            {"reading_settings": {"temperature": 4.0}},
            "reading_settings must have keys among statistics, .*, got 'temperature'",
        ),
        ({"reading_settings": {"momentum": 0.2}}, r"got 'momentum' \(give it as momentum itself\)"),
        (
            {"reading_settings": {"statistics": "both"}},
            "statistics must be one of 'batch', 'running', 'updated', got 'both'",
        ),
        ({"reading_settings": {"min_mass": -1.0}}, r"min_mass must be a finite number of zero or more, got -1\.0"),
        ({"layers": ["stage9"]}, "layers must be paths of modules with batch norms, got 'stage9'; the model has norm,"),
        ({"reading": "mine"}, "reading must be one of measured, appendix, text, got 'mine'"),
        ({"momentum": 2.0}, r"momentum must be None or between 0 and 1, got 2\.0"),
        ({"loss_settings": {"reduction": "none"}}, "loss_settings must not set reduction to 'none'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CompoundBN(network(), COUNTS, **settings)


@pytest.mark.parametrize(("reading", "statistics"), [("appendix", "running"), ("text", "updated")])
def test_the_papers_letter_is_one_argument_away(reading: str, statistics: str) -> None:
    literal = CompoundBN(network(), COUNTS, reading=reading, components=2)
    assert torch.equal(literal.groups, class_groups(4, 2, "contiguous"))
    assert {(norm.reading.statistics, norm.momentum, norm.reading.min_mass) for norm in norms(literal)} == {
        (statistics, 0.1, 0.0)
    }
    assert literal.departures == ()
    assert CompoundBN(network(), COUNTS, reading=reading, momentum=0.9).departures == ()


def test_an_argument_goes_before_the_reading() -> None:
    norm = {"statistics": "batch"}
    built = CompoundBN(network(), COUNTS, reading="appendix", momentum=0.2, reading_settings=norm, components=2)
    assert {(norm.reading.statistics, norm.momentum) for norm in norms(built)} == {("batch", 0.2)}
    assert built.departures == (
        "statistics is batch, the paper's running or updated",
        "momentum is 0.2, the paper's 0.1 or 0.9",
    )


def test_what_departs_from_the_paper_is_said() -> None:
    departures = CompoundBN(network(), COUNTS).departures
    assert "momentum is each batch norm's own, the paper's 0.1 or 0.9" in departures
    assert "detach_responsibilities is true, the paper's false" in departures
    assert "component_init is random, the paper's equal" in departures
    assert "min_mass is 2.0, the paper's 0.0" in departures
    assert "running_variance is sample, the paper's population" in departures
    assert not any("component_init" in said for said in CompoundBN(network(), COUNTS, row="cbn").departures)
    assert CompoundBN(network(), COUNTS, row="baseline").departures == ()
    changed = CompoundBN(network(), COUNTS, reading="text", layers=["stage3"], split_loss_weight=1.0)
    assert changed.departures == (
        "layers is ['stage3'], the paper's all",
        "split_loss_weight is 1.0, the paper's 0.0",
    )


def test_what_makes_no_difference_is_no_departure() -> None:
    said = " ".join(CompoundBN(network(), COUNTS, row="cbn").departures)
    assert "statistics is batch" in said
    assert "group_scheme" not in said
    assert "update_on_split" not in said
    said = " ".join(CompoundBN(network(), COUNTS, components=1).departures)
    assert "update_on_split" in said
    assert "component_init" not in said
    assert "group_scheme" not in said


def test_affine_gradients_are_scaled_unless_the_paper_is_read_to_the_letter() -> None:
    def gradient(**fields: Any) -> Tensor:
        norm = {"component_init": "equal", **fields}
        built = CompoundBN(network(), COUNTS, components=3, row="cbn", reading_settings=norm)
        built(images()).loss.backward()
        weight = norms(built)[0].weight
        assert weight is not None
        assert weight.grad is not None
        return weight.grad

    plain = CompoundBN(network(), COUNTS, row="baseline")
    plain(images()).loss.backward()
    expected = next(norm for norm in plain.model.modules() if isinstance(norm, nn.BatchNorm2d)).weight.grad
    assert expected is not None
    torch.testing.assert_close(gradient(), expected.expand(3, -1), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(gradient(scale_affine=False), expected.expand(3, -1) / 3, rtol=1e-3, atol=1e-5)


def test_a_row_with_the_split_path_alone_updates_by_it_whatever_the_reading() -> None:
    assert CompoundBN(network(), COUNTS, row="sbn").reading_settings["update_on_split"]


def test_a_model_that_is_compound_already_is_refused() -> None:
    with pytest.raises(ValueError, match="model must have a batch norm to convert"):
        CompoundBN(convert_batch_norm(network()), COUNTS)
