from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from longtail.data.views import Batch
from longtail.methods import DisAlign
from longtail.models import create_model

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 1, 2])
BATCH = Batch((torch.linspace(-1, 1, 4 * 3 * 64).reshape(4, 3, 8, 8).sin(),), TARGET, torch.arange(4))


def build(**settings: Any) -> DisAlign:
    torch.manual_seed(0)
    return DisAlign(create_model("resnet8", 3), COUNTS, **settings)


def moved_by_a_step(method: DisAlign) -> set[str]:
    before = {key: value.clone() for key, value in method.state_dict().items()}
    optimiser = torch.optim.SGD(method.parameter_groups(), lr=0.1, weight_decay=0.1)
    optimiser.zero_grad()
    method(*method.prepare(BATCH)).loss.backward()
    optimiser.step()
    method.after_step()
    return {key for key, value in method.state_dict().items() if not torch.equal(value, before[key])}


def test_the_correction_starts_at_none() -> None:
    method = build().eval()
    logits = method.model(BATCH.views[0]).detach()
    weights = (torch.tensor(COUNTS) / 52) ** -1.2
    for progress, weight in ((0.0, None), (0.9, weights)):
        method.set_progress(progress)
        for given in ((BATCH,), method.prepare(BATCH)):
            output = method(*given)
            torch.testing.assert_close(output.logits, logits)
            torch.testing.assert_close(output.loss.detach(), F.cross_entropy(logits, TARGET, weight=weight))


def test_the_corrected_logits_are_those_of_the_equation() -> None:
    method = build().eval()
    plain = method.model(BATCH.views[0]).detach()
    named = dict(method.model.get_submodule("classifier").named_parameters())
    for name in ("gate.weight", "gate.bias", "scale", "offset"):
        nn.init.normal_(named[name])
    features, found = method.features(BATCH.views[0]), method.model(BATCH.views[0])
    for i in range(4):
        gate = 1 / (1 + torch.exp(-(named["gate.weight"][0] @ features[i] + named["gate.bias"][0])))
        for c in range(3):
            expected = (1 + gate * named["scale"][c]) * plain[i, c] + gate * named["offset"][c]
            torch.testing.assert_close(found[i, c], expected)
    method.set_progress(0.9)
    torch.testing.assert_close(method(BATCH).logits, found.detach())


def test_the_second_stage_moves_the_correction_alone() -> None:
    method = build()
    method.set_progress(0.9)
    assert method.samplers == ("instance",)
    moved = moved_by_a_step(method) | moved_by_a_step(method)
    assert moved == {f"model.classifier.{name}" for name in ("scale", "offset", "gate.weight", "gate.bias")}


def test_one_epoch_is_too_short_for_two_stages() -> None:
    with pytest.raises(ValueError, match="epochs must be at least 2, one for each stage, got 1"):
        build().plan(1)


def test_another_model_than_one_with_a_linear_classifier_is_refused() -> None:
    with pytest.raises(ValueError, match="model must have"):
        DisAlign(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), COUNTS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classifier_from": 1.0}, r"classifier_from must be more than 0\.0 and less than 1, got 1\.0"),
        ({"norm_policy": "warm"}, "norm_policy must be 'frozen', 'shifted' or 'reestimated', got 'warm'"),
        ({"classifier_lr_scale": 0.0}, r"classifier_lr_scale must be positive and finite, got 0\.0"),
        ({"power": -1.0}, r"power must be a finite number of zero or more, got -1\.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**settings)
