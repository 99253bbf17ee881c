from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from longtail.data.views import Batch
from longtail.losses import class_weights
from longtail.methods import WeightBalancing
from longtail.methods.weight_balancing import clip_rows
from longtail.models import create_model

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 1, 2])
BATCH = Batch((torch.linspace(-1, 1, 4 * 3 * 64).reshape(4, 3, 8, 8).sin(),), TARGET, torch.arange(4))


def build(**settings: Any) -> WeightBalancing:
    torch.manual_seed(0)
    return WeightBalancing(create_model("resnet8", 3), COUNTS, **settings)


def moved_by_a_step(method: WeightBalancing) -> set[str]:
    before = {key: value.clone() for key, value in method.state_dict().items()}
    optimiser = torch.optim.SGD(method.parameter_groups(), lr=0.1, weight_decay=0.1)
    optimiser.zero_grad()
    method(*method.prepare(BATCH)).loss.backward()
    optimiser.step()
    method.after_step()
    return {key for key, value in method.state_dict().items() if not torch.equal(value, before[key])}


def test_the_loss_is_cross_entropy_then_weighted_with_a_decay_of_the_classifier() -> None:
    method = build(classifier_decay=0.3, max_norm=100.0).eval()
    logits = method.model(BATCH.views[0]).detach()
    torch.testing.assert_close(method(BATCH).loss.detach(), F.cross_entropy(logits, TARGET))
    method.set_progress(0.9)
    weight, bias = (method.model.get_parameter(f"classifier.{name}").detach() for name in ("weight", "bias"))
    decay = 0.3 / 2 * (weight.norm() ** 2 + bias.norm() ** 2)
    for given in ((BATCH,), method.prepare(BATCH)):
        output = method(*given)
        expected = F.cross_entropy(logits, TARGET, weight=class_weights(COUNTS))
        torch.testing.assert_close(output.parts["classification"], expected)
        torch.testing.assert_close(output.parts["decay"], decay)


def test_without_decay_weights_or_a_ball_the_second_stage_is_cross_entropy() -> None:
    method = build(classifier_decay=0.0, max_norm=100.0, beta=0.0).eval()
    method.set_progress(0.9)
    torch.testing.assert_close(method(BATCH).loss, F.cross_entropy(method.model(BATCH.views[0]), TARGET))


def test_rows_are_clipped_as_torch_s_renorm_does() -> None:
    weight = torch.randn(5, 8) * torch.tensor([0.1, 0.5, 1.0, 2.0, 0.0])[:, None]
    expected = torch.renorm(weight, p=2, dim=0, maxnorm=1.5)
    clip_rows(weight, 1.5)
    torch.testing.assert_close(weight, expected)


def test_weights_are_short_from_the_start_of_the_second_stage_and_free_before() -> None:
    method = build(max_norm=0.1)
    moved_by_a_step(method)
    weight = method.model.get_parameter("classifier.weight")
    assert weight.norm(dim=1).max() > 0.1
    method.set_progress(0.9)
    assert weight.norm(dim=1).max() <= 0.1 + 1e-6
    assert moved_by_a_step(method) == {"model.classifier.weight", "model.classifier.bias"}
    assert weight.norm(dim=1).max() <= 0.1 + 1e-6


def test_one_epoch_is_too_short_for_two_stages() -> None:
    with pytest.raises(ValueError, match="epochs must be at least 2, one for each stage, got 1"):
        build().plan(1)


def test_another_model_than_one_with_a_linear_classifier_is_refused() -> None:
    with pytest.raises(ValueError, match="model must have"):
        WeightBalancing(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), COUNTS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classifier_from": 1.0}, r"classifier_from must be more than 0\.0 and less than 1, got 1\.0"),
        ({"norm_policy": "warm"}, "norm_policy must be 'frozen', 'shifted' or 'reestimated', got 'warm'"),
        ({"classifier_lr_scale": 0.0}, r"classifier_lr_scale must be positive and finite, got 0\.0"),
        ({"max_norm": 0.0}, r"max_norm must be positive and finite, got 0\.0"),
        ({"classifier_decay": -1.0}, r"classifier_decay must be a finite number of zero or more, got -1\.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**settings)
