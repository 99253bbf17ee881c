import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from longtail.data.views import Batch
from longtail.methods import TauNorm
from longtail.models import create_model

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 1, 2])
BATCH = Batch((torch.linspace(-1, 1, 4 * 3 * 64).reshape(4, 3, 8, 8).sin(),), TARGET, torch.arange(4))


def build(**settings: Any) -> TauNorm:
    torch.manual_seed(0)
    return TauNorm(create_model("resnet8", 3), COUNTS, **settings)


@pytest.mark.parametrize("tau", [0.0, 0.5, 1.0, 2.0])
def test_the_deployed_logits_are_divided_by_a_power_of_the_norms_and_have_no_bias(tau: float) -> None:
    method = build(tau=tau).eval()
    weight, features = method.model.get_parameter("classifier.linear.weight"), method.features(BATCH.views[0])
    found = method.model(BATCH.views[0])
    for i in range(4):
        for c in range(3):
            torch.testing.assert_close(found[i, c], features[i] @ weight[c] / (weight[c] @ weight[c]) ** (tau / 2))


def test_at_one_the_decisions_are_those_of_cosines() -> None:
    method = build(tau=1.0).eval()
    weight, features = method.model.get_parameter("classifier.linear.weight"), method.features(BATCH.views[0])
    cosines = F.cosine_similarity(features[:, None], weight[None], dim=2)
    torch.testing.assert_close(method.model(BATCH.views[0]), cosines * features.norm(dim=1, keepdim=True))


def test_it_trains_as_cross_entropy_does() -> None:
    model = create_model("resnet8", 3)
    plain = copy.deepcopy(model)
    output = TauNorm(model, COUNTS)(BATCH)
    logits = plain(BATCH.views[0])
    torch.testing.assert_close(output.logits, logits.detach())
    torch.testing.assert_close(output.loss, F.cross_entropy(logits, TARGET))


def test_another_model_than_one_with_a_linear_classifier_is_refused() -> None:
    with pytest.raises(ValueError, match="model must have"):
        TauNorm(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), COUNTS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tau": -1.0}, r"tau must be a finite number of zero or more, got -1\.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**settings)
