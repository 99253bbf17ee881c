from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from longtail.data.views import Batch
from longtail.methods import IB
from longtail.methods.ib import influence
from longtail.models import create_model

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 0, 1, 1, 2])
BATCH = Batch((torch.linspace(-1, 1, 6 * 3 * 64).reshape(6, 3, 8, 8).sin(),), TARGET, torch.arange(6))
WEIGHTS = torch.tensor([1 / 40, 1 / 10, 1 / 2]) * 3 / (1 / 40 + 1 / 10 + 1 / 2)


def ib(**settings: Any) -> IB:
    torch.manual_seed(0)
    return IB(create_model("resnet8", 3), COUNTS, **settings).eval()


def test_the_influence_is_the_size_of_the_gradient_of_the_classifier() -> None:
    torch.manual_seed(0)
    classifier, features = nn.Linear(5, 3), torch.randn(6, 5)
    found = influence(classifier(features), features, TARGET)
    for i, label in enumerate(TARGET):
        loss = F.cross_entropy(classifier(features[i : i + 1]), label[None])
        (gradient,) = torch.autograd.grad(loss, classifier.weight)
        torch.testing.assert_close(found[i], gradient.abs().sum())


@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.0])
def test_the_loss_is_that_of_the_equation(gamma: float) -> None:
    method = ib(gamma=gamma)
    method.set_progress(0.5)
    features = method.features(BATCH.views[0])
    p = method.model(BATCH.views[0]).softmax(1)
    expected = torch.zeros(())
    for i, label in enumerate(TARGET.tolist()):
        size = (p[i] - F.one_hot(TARGET[i], 3)).abs().sum() * features[i].abs().sum()
        expected = expected - WEIGHTS[label] * (1 - p[i, label]) ** gamma * p[i, label].log() * 1000 / (size + 1e-3)
    torch.testing.assert_close(method(BATCH).loss, expected / 6, rtol=1e-4, atol=1e-4)


def test_where_all_images_have_the_same_influence_it_is_weighted_cross_entropy() -> None:
    method = ib(gamma=0.0)
    method.set_progress(1.0)
    classifier = method.model.get_submodule("classifier")
    nn.init.zeros_(classifier.get_parameter("weight"))
    nn.init.zeros_(classifier.get_parameter("bias"))  # p = 1/3 for all
    image = BATCH.views[0][:1].expand(6, -1, -1, -1)
    logits = method.model(image)
    size = 2 * (2 / 3) * method.features(image)[0].abs().sum() + 1e-3
    weighted = (WEIGHTS[TARGET] * F.cross_entropy(logits, TARGET, reduction="none")).mean()
    torch.testing.assert_close(method(BATCH._replace(views=(image,))).loss, weighted * 1000 / size)


@pytest.mark.parametrize(("start", "progress"), [(0.5, 0.49), (1.0, 1.0)])
def test_before_the_start_it_is_cross_entropy(start: float, progress: float) -> None:
    method = ib(start=start)
    method.set_progress(progress)
    torch.testing.assert_close(method(BATCH).loss, F.cross_entropy(method.model(BATCH.views[0]), TARGET))
    assert method.lr_scale == 1


def test_the_learning_rate_falls_where_the_weights_set_in() -> None:
    method = ib()
    method.set_progress(0.5)
    assert method.lr_scale == 0.1


def test_an_image_that_is_certain_has_a_finite_loss_and_gradient() -> None:
    logits = torch.tensor([[100.0, -100.0, 0.0]], requires_grad=True)
    (1 / (influence(logits, torch.ones(1, 4), torch.tensor([0])) + 1e-3)).sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_a_model_without_features_is_refused() -> None:
    with pytest.raises(ValueError, match="model must have forward_features and forward_head and get_classifier"):
        IB(nn.Linear(3, 3), COUNTS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": -1.0}, r"gamma must be a finite number of zero or more, got -1\.0"),
        ({"alpha": 0.0}, r"alpha must be positive and finite, got 0\.0"),
        ({"influence_lr_scale": 0.0}, r"influence_lr_scale must be positive and finite, got 0\.0"),
        ({"start": 100.0}, r"start must be from 0 to 1, got 100\.0 \(a share of the training\)"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ib(**settings)
