from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from longtail.data.views import Batch
from longtail.methods import LWS
from longtail.models import create_model

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 1, 2])
BATCH = Batch((torch.linspace(-1, 1, 4 * 3 * 64).reshape(4, 3, 8, 8).sin(),), TARGET, torch.arange(4))


def build(**settings: Any) -> LWS:
    torch.manual_seed(0)
    return LWS(create_model("resnet8", 3), COUNTS, **settings)


def moved_by_a_step(method: LWS) -> set[str]:
    before = {key: value.clone() for key, value in method.state_dict().items()}
    optimiser = torch.optim.SGD(method.parameter_groups(), lr=0.1, weight_decay=0.1)
    optimiser.zero_grad()
    method(*method.prepare(BATCH)).loss.backward()
    optimiser.step()
    method.after_step()
    return {key for key, value in method.state_dict().items() if not torch.equal(value, before[key])}


def test_it_is_cross_entropy_first_and_scales_of_one_change_nothing() -> None:
    plain = create_model("resnet8", 3).eval()
    method = LWS(plain, COUNTS).eval()
    logits = method.model(BATCH.views[0])
    for progress in (0.0, 0.9):
        method.set_progress(progress)
        output = method(BATCH)
        torch.testing.assert_close(output.logits, logits.detach())
        torch.testing.assert_close(output.loss, F.cross_entropy(logits, TARGET))


def test_the_gradient_of_a_scale_is_that_of_the_equation() -> None:
    method = build().eval()
    method.set_progress(0.9)
    method(BATCH).loss.backward()
    logits = method.model(BATCH.views[0]).detach()
    expected = torch.zeros(3)
    for i in range(4):
        for c in range(3):
            expected[c] += (logits[i].softmax(0)[c] - float(TARGET[i] == c)) * logits[i, c] / 4
    torch.testing.assert_close(method.model.get_parameter("classifier.scale").grad, expected)


def test_the_second_stage_moves_the_scales_alone_and_draws_class_balanced() -> None:
    method = build()
    method.set_progress(0.9)
    assert method.samplers == ("class_balanced",)
    assert moved_by_a_step(method) == {"model.classifier.scale"}


def test_the_first_stage_leaves_the_scales_alone() -> None:
    method = build()
    method.set_progress(0.0)
    assert "model.classifier.scale" not in moved_by_a_step(method)


@pytest.mark.parametrize(("policy", "moves"), [("frozen", False), ("shifted", True), ("reestimated", True)])
def test_the_statistics_of_batch_norms_follow_the_policy(policy: str, moves: bool) -> None:
    method = build(norm_policy=policy)
    method.set_progress(0.9)
    assert any("running_mean" in key for key in moved_by_a_step(method)) == moves


def test_one_epoch_is_too_short_for_two_stages() -> None:
    with pytest.raises(ValueError, match="epochs must be at least 2, one for each stage, got 1"):
        build().plan(1)


def test_another_model_than_one_with_a_linear_classifier_is_refused() -> None:
    with pytest.raises(ValueError, match="model must have"):
        LWS(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), COUNTS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classifier_from": 1.0}, r"classifier_from must be more than 0\.0 and less than 1, got 1\.0"),
        ({"norm_policy": "warm"}, "norm_policy must be 'frozen', 'shifted' or 'reestimated', got 'warm'"),
        ({"classifier_lr_scale": 0.0}, r"classifier_lr_scale must be positive and finite, got 0\.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**settings)
