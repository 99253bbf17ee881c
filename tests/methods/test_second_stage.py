"""What holds for every method that trains features first and then the classifier alone."""

from typing import Any

import pytest
from torch import nn

from longtail.methods import LOS, LWS, DisAlign, Method, MiSLAS, WeightBalancing
from tests.support.one_step import COUNTS, build, moved_by_a_step

each_kind = pytest.mark.parametrize("kind", [DisAlign, LOS, LWS, MiSLAS, WeightBalancing])


@each_kind
def test_the_second_stage_moves_nothing_but_the_classifier(kind: type[Method]) -> None:
    method = build(kind, norm_policy="frozen")
    method.set_progress(0.96)
    moved = moved_by_a_step(method) | moved_by_a_step(method)
    assert moved
    assert {key for key in moved if not key.startswith("model.classifier.")} == set()


@each_kind
@pytest.mark.parametrize(("policy", "moves"), [("frozen", False), ("shifted", True), ("reestimated", True)])
def test_the_statistics_of_batch_norms_follow_the_policy(kind: type[Method], policy: str, moves: bool) -> None:
    method = build(kind, norm_policy=policy)
    method.set_progress(0.96)
    assert any("running_mean" in key for key in moved_by_a_step(method)) == moves


@each_kind
@pytest.mark.parametrize("policy", ["frozen", "shifted", "reestimated"])
def test_going_back_to_the_first_stage_restores_its_layers(kind: type[Method], policy: str) -> None:
    method = build(kind, norm_policy=policy)
    method.set_progress(0.96)
    method.train()
    assert not all(module.training for module in method.modules())
    method.set_progress(0.1)
    assert all(module.training for module in method.modules())
    assert {m.momentum for m in method.modules() if isinstance(m, nn.BatchNorm2d)} == {0.1}


@each_kind
def test_the_mode_of_evaluation_is_that_of_all_parts(kind: type[Method]) -> None:
    method = build(kind, norm_policy="shifted")
    method.set_progress(0.96)
    assert not any(module.training for module in method.eval().modules())


@each_kind
def test_one_epoch_is_too_short_for_two_stages(kind: type[Method]) -> None:
    with pytest.raises(ValueError, match="epochs must be at least 2, one for each stage, got 1"):
        build(kind).plan(1)


@each_kind
def test_each_stage_has_whole_epochs(kind: type[Method]) -> None:
    method = build(kind, classifier_from=0.55)
    method.plan(4)
    assert method.stages == (0.0, 0.75)
    assert method.settings()["classifier_from"] == 0.75
    method.set_progress(0.5)
    assert method.lr_scale == 1.0
    method.set_progress(0.75)
    assert method.lr_scale == method.settings()["classifier_lr_scale"]


@each_kind
def test_another_model_than_one_with_a_linear_classifier_is_refused(kind: type[Method]) -> None:
    with pytest.raises(ValueError, match="model must have"):
        kind(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), COUNTS)


@each_kind
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classifier_from": 1.0}, r"classifier_from must be more than 0\.0 and less than 1, got 1\.0"),
        ({"norm_policy": "warm"}, "norm_policy must be 'frozen', 'shifted' or 'reestimated', got 'warm'"),
        ({"classifier_lr_scale": 0.0}, r"classifier_lr_scale must be positive and finite, got 0\.0"),
    ],
)
def test_settings_of_the_stage_that_make_no_sense_are_refused(
    kind: type[Method], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build(kind, **settings)
