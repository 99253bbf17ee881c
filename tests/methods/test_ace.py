from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.data.views import Batch
from longtail.methods import ACE
from longtail.methods.ace import target_classes
from longtail.models import create_model
from longtail.training.microbatches import cut_microbatches

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 0, 1, 1, 2])
BATCH = Batch((torch.linspace(-1, 1, 6 * 3 * 64).reshape(6, 3, 8, 8).sin(),), TARGET, torch.arange(6))
OWN = [[0, 1, 2], [1, 2], [2]]


def ace(**settings: Any) -> ACE:
    torch.manual_seed(0)
    return ACE(create_model("resnet8", 3), COUNTS, **settings).eval()


def expert_logits(method: ACE) -> list[Tensor]:
    shared = method.model.trunk(BATCH.views[0])
    return [head(expert(shared)) for expert, head in zip(method.model.experts, method.model.classifier, strict=True)]


def test_target_classes_are_nested_and_end_with_the_rarest() -> None:
    found = target_classes([5, 500, 50, 50, 1, 9], 3)
    assert [row.nonzero().flatten().tolist() for row in found] == [[0, 1, 2, 3, 4, 5], [0, 3, 4, 5], [0, 4]]


def test_one_expert_is_cross_entropy_of_the_network_itself() -> None:
    torch.manual_seed(0)
    logits = create_model("resnet8", 3).eval()(BATCH.views[0])
    method = ace(experts=1)
    torch.testing.assert_close(method.model(BATCH.views[0]), logits)
    torch.testing.assert_close(method(*method.prepare(BATCH)).loss, F.cross_entropy(logits, TARGET))


@pytest.mark.parametrize("target", [TARGET, torch.tensor([0, 0, 0, 0, 1, 1])], ids=["all classes", "one is absent"])
def test_the_loss_is_that_of_the_equation(target: Tensor) -> None:
    method = ace(complementary_weight=0.5)
    batch = BATCH._replace(target=target)
    expected = torch.zeros(())
    for logits, own in zip(expert_logits(method), OWN, strict=True):
        rows = [i for i, label in enumerate(target.tolist()) if label in own]
        for i in rows:
            loss = F.cross_entropy(logits[i : i + 1], target[i : i + 1])
            silent = sum((logits[i, c] ** 2 for c in range(3) if c not in own), start=torch.zeros(()))
            expected = expected + (loss + 0.5 * silent) / len(rows)
    torch.testing.assert_close(method(*method.prepare(batch)).loss, expected)


def test_the_prediction_is_the_mean_over_the_experts_of_a_class_re_scaled_by_their_norms() -> None:
    method = ace()
    norms = [
        head.get_parameter("weight")[own].norm(dim=1).mean()
        for head, own in zip(method.model.classifier, OWN, strict=True)
    ]
    scaled = [each * (norms[0] / norm) ** 2 for each, norm in zip(expert_logits(method), norms, strict=True)]
    columns = [torch.stack([scaled[j][:, c] for j in range(3) if c in OWN[j]]).mean(0) for c in range(3)]
    torch.testing.assert_close(method.model(BATCH.views[0]), torch.stack(columns, dim=1))


def test_the_trunk_has_the_gradient_of_the_first_expert_alone() -> None:
    method = ace()
    method(*method.prepare(BATCH)).loss.backward()
    found = [parameter.grad for parameter in method.model.trunk.parameters()]
    first = F.cross_entropy(expert_logits(method)[0], TARGET)
    for one, other in zip(found, torch.autograd.grad(first, list(method.model.trunk.parameters())), strict=True):
        torch.testing.assert_close(one, other)


def test_the_learning_rate_of_an_expert_is_the_share_of_its_images() -> None:
    assert [group.get("lr_scale") for group in ace().parameter_groups()] == pytest.approx([1.0, 12 / 52, 2 / 52])


@pytest.mark.parametrize("number", [2, 3])
def test_micro_batches_have_the_gradient_of_the_batch(number: int) -> None:
    method = ace()
    prepared = method.prepare(BATCH)
    whole = torch.autograd.grad(method(*prepared).loss, list(method.parameters()))
    for micro in cut_microbatches(prepared, number):
        (method(*micro).loss * len(micro[0].target) / 6).backward()
    for parameter, gradient in zip(method.parameters(), whole, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"experts": 0}, "experts must be at least 1, got 0"),
        ({"experts": 4}, "experts must be at most the number of classes, 3, got 4"),
        ({"complementary_weight": -1.0}, r"complementary_weight must be a finite number of zero or more, got -1\.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ace(**settings)
