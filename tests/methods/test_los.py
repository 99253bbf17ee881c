from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from longtail.data.views import Batch
from longtail.methods import LOS
from longtail.models import create_model

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 1, 2])
BATCH = Batch((torch.linspace(-1, 1, 4 * 3 * 64).reshape(4, 3, 8, 8).sin(),), TARGET, torch.arange(4))


def build(**settings: Any) -> LOS:
    torch.manual_seed(0)
    return LOS(create_model("resnet8", 3), COUNTS, **settings)


def moved_by_a_step(method: LOS) -> set[str]:
    before = {key: value.clone() for key, value in method.state_dict().items()}
    optimiser = torch.optim.SGD(method.parameter_groups(), lr=0.1, weight_decay=0.1)
    optimiser.zero_grad()
    method(*method.prepare(BATCH)).loss.backward()
    optimiser.step()
    method.after_step()
    return {key for key, value in method.state_dict().items() if not torch.equal(value, before[key])}


def test_both_stages_are_torch_s_cross_entropy_with_their_smoothing() -> None:
    method = build(label_smoothing=0.9).eval()
    for progress, smoothing in ((0.0, 0.0), (0.9, 0.9)):
        method.set_progress(progress)
        logits = method.model(BATCH.views[0])
        torch.testing.assert_close(method(BATCH).loss, F.cross_entropy(logits, TARGET, label_smoothing=smoothing))


def test_without_smoothing_the_second_stage_goes_on_with_cross_entropy() -> None:
    method = build(label_smoothing=0.0).eval()
    first = method(BATCH).loss
    method.set_progress(0.9)
    torch.testing.assert_close(method(BATCH).loss, first)


def test_the_second_stage_starts_one_new_classifier_if_asked() -> None:
    method = build(reset_classifier=True)
    old = method.model.get_parameter("classifier.weight").detach().clone()
    method.set_progress(0.9)
    new = method.model.get_parameter("classifier.weight").detach().clone()
    assert not torch.equal(old, new)
    method.set_progress(0.95)
    assert torch.equal(method.model.get_parameter("classifier.weight"), new)


def test_the_second_stage_moves_the_classifier_alone() -> None:
    method = build()
    method.set_progress(0.9)
    assert moved_by_a_step(method) == {"model.classifier.weight", "model.classifier.bias"}


def test_one_epoch_is_too_short_for_two_stages() -> None:
    with pytest.raises(ValueError, match="epochs must be at least 2, one for each stage, got 1"):
        build().plan(1)


def test_another_model_than_one_with_a_linear_classifier_is_refused() -> None:
    with pytest.raises(ValueError, match="model must have"):
        LOS(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), COUNTS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classifier_from": 1.0}, r"classifier_from must be more than 0\.0 and less than 1, got 1\.0"),
        ({"norm_policy": "warm"}, "norm_policy must be 'frozen', 'shifted' or 'reestimated', got 'warm'"),
        ({"classifier_lr_scale": 0.0}, r"classifier_lr_scale must be positive and finite, got 0\.0"),
        ({"label_smoothing": 1.0}, r"label_smoothing must be at least 0 and less than 1, got 1\.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**settings)
