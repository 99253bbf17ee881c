from typing import Any

import pytest
import torch
import torch.nn.functional as F

from longtail.data.mixing import unimix
from longtail.data.views import Batch
from longtail.methods import UniMix
from longtail.models import create_model
from longtail.training.microbatches import cut_microbatches

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 0, 1, 1, 2])
BATCH = Batch((torch.linspace(-1, 1, 6 * 3 * 64).reshape(6, 3, 8, 8).sin(),), TARGET, torch.arange(6))


def method(**settings: Any) -> UniMix:
    torch.manual_seed(0)
    return UniMix(create_model("resnet8", 3), COUNTS, **settings).eval()


def test_the_step_mixes_as_the_mixing_of_that_name_does() -> None:
    trained = method(tau=-0.5)
    torch.manual_seed(5)
    (prepared,) = trained.prepare(BATCH)
    generator = torch.Generator().manual_seed(5)
    expected = unimix(BATCH.views[0], TARGET, class_counts=COUNTS, tau=-0.5, generator=generator)
    assert torch.equal(prepared.views[0], expected.images)
    assert torch.equal(prepared.extra["partner"], expected.target_b)
    assert torch.equal(prepared.extra["share"], expected.weight)


def test_the_loss_is_cross_entropy_of_the_shifted_logits_with_soft_labels() -> None:
    trained = method()
    torch.manual_seed(1)
    (prepared,) = trained.prepare(BATCH)
    share = prepared.extra["share"][:, None]
    soft = share * F.one_hot(TARGET, 3) + (1 - share) * F.one_hot(prepared.extra["partner"], 3)
    shift = (torch.tensor(COUNTS) / sum(COUNTS)).log() - torch.tensor(1 / 3).log()
    logits = trained.model(prepared.views[0])
    torch.testing.assert_close(trained(prepared).loss, F.cross_entropy(logits + shift, soft))


@pytest.mark.parametrize("number", [2, 3])
def test_micro_batches_have_the_gradient_of_the_batch(number: int) -> None:
    trained = method()
    prepared = trained.prepare(BATCH)
    whole = torch.autograd.grad(trained(*prepared).loss, list(trained.parameters()))
    for micro in cut_microbatches(prepared, number):
        (trained(*micro).loss * len(micro[0].target) / 6).backward()
    for parameter, gradient in zip(trained.parameters(), whole, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 0.0}, r"alpha must be above 0, got 0\.0"),
        ({"tau": float("nan")}, "tau must be finite, got nan"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        method(**settings)
