from typing import Any

import pytest
import torch
import torch.nn.functional as F

from longtail.data.views import Batch
from longtail.losses import class_weights
from longtail.methods import RIDE
from longtail.methods.ride import diversity
from longtail.models import create_model

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 1, 2])
BATCH = Batch((torch.linspace(-1, 1, 4 * 3 * 64).reshape(4, 3, 8, 8).sin(),), TARGET, torch.arange(4))


def ride(name: str = "resnet8", **settings: Any) -> RIDE:
    torch.manual_seed(0)
    return RIDE(create_model(name, 3), COUNTS, **settings)


def expert_logits(method: RIDE) -> list[torch.Tensor]:
    shared = method.model.trunk(BATCH.views[0])
    return [
        30 * F.cosine_similarity(expert(shared)[:, None], head.get_parameter("weight")[None], dim=2)
        for expert, head in zip(method.model.experts, method.model.classifier, strict=True)
    ]


def test_one_expert_without_margin_is_cross_entropy_of_scaled_cosines() -> None:
    method = ride(experts=1, max_margin=0.0).eval()
    (logits,) = expert_logits(method)
    output = method(BATCH)
    torch.testing.assert_close(output.loss, F.cross_entropy(logits, TARGET))
    torch.testing.assert_close(output.parts["diversity"], torch.zeros(()))


@pytest.mark.parametrize("progress", [0.0, 0.79, 0.8, 1.0])
def test_the_loss_is_that_of_the_paper_s_equations(progress: float) -> None:
    method = ride().eval()
    method.set_progress(progress)
    late = progress >= 0.8
    counts = torch.tensor(COUNTS).float()
    temperature = 0.05 * 3 * counts / counts.sum() + 0.95
    temperature = temperature / temperature.max() if late else torch.ones(3)
    margins = 30 * 0.5 * (2 / counts) ** 0.25
    logits = expert_logits(method)
    mean = torch.stack(logits).mean(0)
    expected = torch.zeros(())
    for each in logits:
        shifted = each - margins * F.one_hot(TARGET, 3)
        expected = expected + F.cross_entropy(shifted, TARGET, weight=class_weights(COUNTS) if late else None)
        p, q = F.softmax(mean / temperature, dim=1), F.softmax(each / temperature, dim=1)
        kl = (p * (p / q).log()).sum(1).mean()
        expected = expected - 0.45 * temperature.mean() ** 2 * kl
    output = method(BATCH)
    torch.testing.assert_close(output.loss, expected)
    torch.testing.assert_close(output.logits, mean.detach())


def test_the_diversity_is_torch_s_kl_divergence_summed_over_experts() -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 5, 4)
    mean = logits.mean(0).softmax(1)
    expected = sum(F.kl_div(each.log_softmax(1), mean, reduction="batchmean") for each in logits)
    torch.testing.assert_close(diversity(logits, torch.ones(4)), expected)
    torch.testing.assert_close(diversity(logits, torch.full((4,), 2.0)), 4 * diversity(logits / 2, torch.ones(4)))


def test_equal_experts_have_no_diversity_and_the_mean_gets_no_gradient_from_it() -> None:
    same = torch.randn(1, 5, 4).expand(3, -1, -1)
    torch.testing.assert_close(diversity(same, torch.ones(4)), torch.zeros(()))
    logits = torch.randn(2, 5, 4, requires_grad=True)
    diversity(logits, torch.ones(4)).backward()
    mean = logits.detach().mean(0).softmax(1)
    torch.testing.assert_close(logits.grad, (logits.detach().softmax(2) - mean) / 5)  # of a cross-entropy with it


def test_the_deployed_model_gives_the_mean_logits() -> None:
    method = ride().eval()
    torch.testing.assert_close(method.model(BATCH.views[0]), torch.stack(expert_logits(method)).mean(0))


def test_experts_share_the_first_stage_and_part_in_a_step() -> None:
    method = ride("resnet14")
    first, second, _ = method.model.experts
    own = sum(parameter.numel() for parameter in first.parameters())
    shared = sum(parameter.numel() for parameter in method.model.trunk.parameters())
    assert sum(parameter.numel() for parameter in method.model.parameters()) == shared + 3 * own + 3 * 3 * 64
    assert all(map(torch.equal, first.parameters(), second.parameters()))
    optimiser = torch.optim.SGD(method.parameter_groups(), lr=0.1)
    method(BATCH).loss.backward()
    optimiser.step()
    assert not any(map(torch.equal, first.parameters(), second.parameters()))


@pytest.mark.parametrize("name", ["resnet10t", "tf_efficientnet_lite0"])
def test_takes_a_model_of_timm(name: str) -> None:
    method = ride(name)
    method(Batch((torch.randn(4, 3, 32, 32),), TARGET, BATCH.indices)).loss.backward()
    assert all(parameter.grad is not None for parameter in method.parameters())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"experts": 0}, "experts must be at least 1, got 0"),
        ({"diversity_weight": -1.0}, r"diversity_weight must be a finite number of zero or more, got -1\.0"),
        ({"temperature_reweight": 1.0}, r"temperature_reweight must be at least 0 and less than 1, got 1\.0"),
        ({"scale": 0.0}, r"scale must be positive and finite, got 0\.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ride(**settings)
