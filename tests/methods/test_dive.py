import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from longtail.data.views import Batch
from longtail.losses import balanced_softmax_loss
from longtail.methods import ERM, DiVE
from longtail.methods.dive import virtual_examples
from longtail.models import create_model

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 1, 2])
BATCH = Batch((torch.linspace(-1, 1, 4 * 3 * 64).reshape(4, 3, 8, 8).sin(),), TARGET, torch.arange(4))


def network(seed: int, classes: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    return create_model("resnet8", classes)


def teacher(classes: int = 3) -> nn.Module:
    return network(7, classes).eval().requires_grad_(False)


def dive(**settings: Any) -> DiVE:
    return DiVE(network(0), COUNTS, **({"teacher": teacher()} | settings))


def test_the_loss_is_that_of_the_paper_s_equations() -> None:
    method = dive(distillation_weight=0.3, temperature=3.0, power=0.7).eval()
    z, t = method.model(BATCH.views[0]), teacher()(BATCH.views[0])
    expected = torch.zeros(())
    for i, y in enumerate(TARGET):
        q = (t[i] / 3).softmax(0) ** 0.7
        q = q / q.sum()
        p = (z[i] / 3).softmax(0)
        kl = sum(q[k] * (q[k] / p[k]).log() for k in range(3))
        odds = torch.tensor(COUNTS) * z[i].exp()
        expected = expected + (0.7 * -(odds[y] / odds.sum()).log() + 0.3 * 9 * kl) / 4
    torch.testing.assert_close(method(BATCH).loss, expected)


def test_without_distillation_a_step_is_that_of_balanced_softmax() -> None:
    method, other = dive(distillation_weight=0.0), ERM(network(0), COUNTS, loss="balanced_softmax")
    for each in (method, other):
        each(BATCH).loss.backward()
    for one, two in zip(method.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)
    torch.testing.assert_close(
        method(BATCH).loss, balanced_softmax_loss(method(BATCH).logits, TARGET, class_counts=COUNTS)
    )


def test_a_network_that_answers_as_its_teacher_has_no_distance_to_it() -> None:
    method = dive(distillation_weight=1.0, power=1.0).eval()
    method.model.load_state_dict(teacher().state_dict())
    output = method(BATCH)
    torch.testing.assert_close(output.loss, torch.zeros(()), atol=1e-6, rtol=0)


def test_virtual_examples_are_less_long_tailed_with_a_smaller_power() -> None:
    logits = torch.tensor(COUNTS).float().log()[None]
    shares = [virtual_examples(logits, temperature=1.0, power=power)[0] for power in (1.0, 0.5, 0.1)]
    torch.testing.assert_close(shares[0], torch.tensor(COUNTS) / 52)
    torch.testing.assert_close(shares[1], F.normalize(torch.tensor(COUNTS).float().sqrt(), p=1, dim=0))
    assert shares[0][2] < shares[1][2] < shares[2][2]


def test_the_teacher_is_neither_trained_nor_saved() -> None:
    taught = teacher()
    before = copy.deepcopy(taught.state_dict())
    method = dive(teacher=taught)
    method(BATCH).loss.backward()
    assert all(parameter.grad is None for parameter in taught.parameters())
    assert all(torch.equal(value, taught.state_dict()[key]) for key, value in before.items())
    assert set(method.state_dict()) == {f"model.{key}" for key in method.model.state_dict()}


def test_training_without_a_teacher_or_with_one_of_other_classes_is_refused() -> None:
    with pytest.raises(ValueError, match="teacher must be the network of a finished run to train dive, got None"):
        dive(teacher=None)(BATCH)
    with pytest.raises(ValueError, match="teacher must have 3 classes, as the data, got 4"):
        dive(teacher=teacher(4))(BATCH)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"distillation_weight": 1.5}, r"distillation_weight must be from 0 to 1, got 1\.5"),
        ({"temperature": 0.0}, r"temperature must be positive and finite, got 0\.0"),
        ({"power": -1.0}, r"power must be positive and finite, got -1\.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dive(**settings)
