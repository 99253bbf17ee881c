from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.methods import GistNet
from longtail.methods.gistnet import GistClassifier, gist_logits
from longtail.models import create_model
from longtail.nn.cosine_classifier import cosine_logits

COUNTS = [40, 10, 2]
IMAGES = torch.linspace(-1, 1, 4 * 3 * 64).reshape(4, 3, 8, 8).sin()
PLAIN = Batch((IMAGES,), torch.tensor([0, 0, 0, 1]), torch.arange(4))
BALANCED = Batch((IMAGES.flip(0) * 0.7,), torch.tensor([2, 1, 2, 0]), torch.arange(4))


def gistnet(progress: float = 0.0, name: str = "resnet8", **settings: Any) -> GistNet:
    torch.manual_seed(0)
    method = GistNet(create_model(name, 3), COUNTS, **settings)
    method.set_progress(progress)
    return method


def classifier(method: GistNet) -> GistClassifier:
    (found,) = (module for module in method.model.modules() if isinstance(module, GistClassifier))
    return found


def test_the_logits_are_those_of_the_paper_s_equation() -> None:
    torch.manual_seed(0)
    h, w, d = torch.randn(4, 5), torch.randn(3, 5), torch.randn(2, 5)
    found = gist_logits(h, w, d, torch.tensor(7.0))
    for i in range(4):
        for k in range(3):
            places = [w[k], *(w[k] + shift for shift in d)]
            expected = max(7 * (h[i] @ place / h[i].norm() / place.norm()) for place in places)
            torch.testing.assert_close(found[i, k], torch.as_tensor(expected))


def test_without_displacements_it_is_a_cosine_classifier() -> None:
    h, w = torch.randn(4, 5), torch.randn(3, 5)
    found = gist_logits(h, w, torch.zeros(2, 5), torch.tensor(16.0))
    torch.testing.assert_close(found, cosine_logits(h, w, scale=16))


@pytest.mark.parametrize("progress", [0.0, 0.49, 0.5, 1.0])
def test_the_loss_is_that_of_both_batches(progress: float) -> None:
    method = gistnet(progress, balanced_weight=0.3).eval()
    used = classifier(method)
    assert used.displacements.any() == (progress >= 0.5)

    def loss(batch: Batch, weight: Tensor, scale: Tensor) -> Tensor:
        logits = gist_logits(method.features(batch.views[0]), weight, used.displacements, scale)
        return F.cross_entropy(logits, batch.target)

    expected = loss(PLAIN, method.random_weight, method.random_scale) + 0.3 * loss(BALANCED, used.weight, used.scale)
    torch.testing.assert_close(method(PLAIN, BALANCED).loss, expected)


def test_displacements_learn_from_images_as_they_come_alone() -> None:
    method = gistnet(0.5).eval()
    used = classifier(method)
    method(PLAIN, BALANCED).loss.backward()
    first = used.displacements.grad
    assert first is not None
    assert first.any()
    method.zero_grad()
    method(PLAIN, BALANCED._replace(target=torch.tensor([0, 0, 1, 1]))).loss.backward()
    torch.testing.assert_close(used.displacements.grad, first)


def test_displacements_do_not_learn_in_the_first_stage() -> None:
    method = gistnet()
    method(PLAIN, BALANCED).loss.backward()
    assert classifier(method).displacements.grad is None


def test_displacements_start_once_the_same_on_each_rank() -> None:
    one, other = gistnet(0.5), gistnet(0.5)
    assert torch.equal(classifier(one).displacements, classifier(other).displacements)
    with torch.no_grad():
        classifier(one).displacements.mul_(3)
    before = classifier(one).displacements.clone()
    one.set_progress(0.6)
    assert torch.equal(classifier(one).displacements, before)


def test_the_deployed_model_uses_the_balanced_weights() -> None:
    method = gistnet(0.5).eval()
    used = classifier(method)
    expected = gist_logits(method.features(IMAGES), used.weight, used.displacements, used.scale)
    torch.testing.assert_close(method.model(IMAGES), expected)


@pytest.mark.parametrize("name", ["resnet10t", "tf_efficientnet_lite0"])
def test_takes_a_model_of_timm(name: str) -> None:
    method = gistnet(0.5, name)
    batch = Batch((torch.randn(4, 3, 32, 32),), PLAIN.target, PLAIN.indices)
    method(batch, batch).loss.backward()
    assert all(parameter.grad is not None for parameter in method.parameters())


def test_a_training_of_one_epoch_and_another_classifier_are_refused() -> None:
    with pytest.raises(ValueError, match="epochs must be at least 2, one for each stage, got 1"):
        gistnet().plan(1)
    with pytest.raises(ValueError, match=r"model must have forward_features .* to be given displacements"):
        GistNet(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), COUNTS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"displacements": 0}, "displacements must be at least 1, got 0"),
        ({"balanced_weight": 0.0}, r"balanced_weight must be positive and finite, got 0\.0"),
        ({"structure_from": 1.0}, r"structure_from must be more than 0\.0 and less than 1, got 1\.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gistnet(**settings)
