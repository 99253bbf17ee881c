import math
from typing import Any

import pytest
import torch
from torch import Tensor

from longtail.data.views import Batch
from longtail.losses import balanced_softmax_loss
from longtail.methods import LADE
from longtail.methods.lade import density_ratio_regularizer
from longtail.models import create_model

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 0, 1, 1, 2])
BATCH = Batch((torch.linspace(-1, 1, 6 * 3 * 64).reshape(6, 3, 8, 8).sin(),), TARGET, torch.arange(6))


def lade(**settings: Any) -> LADE:
    torch.manual_seed(0)
    return LADE(create_model("resnet8", 3), COUNTS, **settings)


def by_loops(logits: Tensor, target: Tensor, penalty: float) -> float:
    """The regulariser, image by image and class by class."""
    rows, labels = logits.tolist(), target.tolist()
    total = 0.0
    for c, count in enumerate(COUNTS):
        prior = count / sum(COUNTS)
        ratio = math.log(sum(math.exp(row[c]) / (len(COUNTS) * prior) for row in rows) / len(rows))
        own = [row[c] for row, label in zip(rows, labels, strict=True) if label == c]
        mean = sum(own) / len(own) if own else 0.0
        total += prior * (ratio + penalty * ratio**2 - mean)
    return total


@pytest.mark.parametrize("target", [TARGET, torch.tensor([0, 0, 0, 1, 1, 1])], ids=["all classes", "one is absent"])
def test_the_regulariser_is_that_of_the_equation(target: Tensor) -> None:
    logits = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    priors = torch.tensor(COUNTS, dtype=torch.float64) / sum(COUNTS)
    found = density_ratio_regularizer(logits, target, priors, penalty=0.3)
    assert found.item() == pytest.approx(by_loops(logits, target, 0.3))
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: density_ratio_regularizer(z, target, priors, penalty=0.3), logits)


def test_without_the_regulariser_it_is_balanced_softmax() -> None:
    output = lade(regularizer_weight=0.0)(BATCH)
    torch.testing.assert_close(output.loss.detach(), balanced_softmax_loss(output.logits, TARGET, class_counts=COUNTS))


def test_the_loss_is_balanced_softmax_and_the_weighted_regulariser() -> None:
    output = lade()(BATCH)
    expected = balanced_softmax_loss(output.logits, TARGET, class_counts=COUNTS)
    assert output.loss.item() == pytest.approx(expected.item() + 0.1 * by_loops(output.logits, TARGET, 0.01), rel=1e-5)


def test_large_logits_stay_finite() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0]]).requires_grad_()
    loss = density_ratio_regularizer(logits, torch.tensor([0]), torch.tensor([0.5, 0.3, 0.2]), penalty=0.01)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("name", ["regularizer_weight", "penalty"])
def test_settings_that_make_no_sense_are_refused(name: str) -> None:
    settings: dict[str, Any] = {name: -1.0}
    with pytest.raises(ValueError, match=rf"{name} must be a finite number of zero or more, got -1\.0"):
        lade(**settings)
