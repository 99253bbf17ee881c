from typing import Any

import pytest
import torch
import torch.nn.functional as F

from longtail.data.views import Batch
from longtail.losses import balanced_softmax_loss
from longtail.methods import Experts
from longtail.models import create_model

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 1, 2])
BATCH = Batch((torch.linspace(-1, 1, 4 * 3 * 64).reshape(4, 3, 8, 8).sin(),), TARGET, torch.arange(4))


def method(name: str = "resnet8", **settings: Any) -> Experts:
    torch.manual_seed(0)
    return Experts(create_model(name, 3), COUNTS, **settings)


def test_one_expert_of_strength_one_is_balanced_softmax_of_the_network_itself() -> None:
    torch.manual_seed(0)
    model = create_model("resnet8", 3).eval()
    logits = model(BATCH.views[0]).detach()
    trained = Experts(model, COUNTS, strengths=[1.0]).eval()
    torch.testing.assert_close(trained.model(BATCH.views[0]), logits)
    torch.testing.assert_close(trained(BATCH).loss, balanced_softmax_loss(logits, TARGET, class_counts=COUNTS))


def test_the_loss_is_the_sum_over_experts_and_the_prediction_their_mean() -> None:
    trained = method().eval()
    log_priors = (torch.tensor(COUNTS) / sum(COUNTS)).log()
    shared = trained.model.trunk(BATCH.views[0])
    logits = [
        head(expert(shared)) for expert, head in zip(trained.model.experts, trained.model.classifier, strict=True)
    ]
    pairs = zip(logits, (0.9, 1.0, 1.1), strict=True)
    expected = sum(F.cross_entropy(each + strength * log_priors, TARGET) for each, strength in pairs)
    output = trained(BATCH)
    torch.testing.assert_close(output.loss, expected)
    torch.testing.assert_close(trained.model(BATCH.views[0]), torch.stack(logits).mean(0))
    torch.testing.assert_close(output.logits, torch.stack(logits).mean(0).detach())


def test_where_the_strengths_average_to_one_so_does_the_shift_of_the_mean_logits() -> None:
    """The product of experts that are right under their own priors is right under equal ones."""
    priors, posterior = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.5, 0.3, 0.2])  # balanced posterior of an image
    strengths = torch.tensor([0.9, 1.0, 1.1])
    logits = [(posterior * priors ** (1 - strength)).log() for strength in strengths]
    torch.testing.assert_close(torch.stack(logits).mean(0).softmax(0), posterior)


def test_only_the_last_stage_and_the_head_are_an_expert_s_own_and_they_part() -> None:
    trained = method("resnet14")
    first, second, third = trained.model.experts
    plain = create_model("resnet14", 3)
    own = sum(p.numel() for p in plain.get_submodule("stage3").parameters()) + 3 * 64 + 3
    total = sum(p.numel() for p in plain.parameters())
    assert sum(p.numel() for p in trained.parameters()) == total + 2 * own
    assert all(map(torch.equal, first.parameters(), third.parameters()))
    optimiser = torch.optim.SGD(trained.parameter_groups(), lr=0.1)
    trained(BATCH).loss.backward()
    optimiser.step()
    assert not any(map(torch.equal, first.parameters(), second.parameters()))


@pytest.mark.parametrize("name", ["resnet10t", "tf_efficientnet_lite0"])
def test_takes_a_model_of_timm(name: str) -> None:
    trained = method(name)
    trained(Batch((torch.randn(4, 3, 32, 32),), TARGET, BATCH.indices)).loss.backward()
    assert all(parameter.grad is not None for parameter in trained.parameters())


def test_another_network_is_refused() -> None:
    with pytest.raises(ValueError, match="model must be a network whose last stage is known, got VisionTransformer"):
        method("test_vit")


@pytest.mark.parametrize("strengths", [[], [1.0, -1.0], [float("inf")]])
def test_strengths_that_make_no_sense_are_refused(strengths: list[float]) -> None:
    with pytest.raises(ValueError, match="strengths must be finite numbers of zero or more, one an expert, got"):
        method(strengths=strengths)
