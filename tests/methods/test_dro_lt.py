import copy
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.methods import DROLT
from longtail.methods.base import HeadedModel
from longtail.methods.dro_lt import robust_loss
from longtail.models import create_model

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 1, 2])
BATCH = Batch((torch.linspace(-1, 1, 4 * 3 * 64).reshape(4, 3, 8, 8).sin(),), TARGET, torch.arange(4))


class Share:
    """A rank's share of the training set, and what the other rank has summed."""

    def __init__(self, batches: Sequence[Batch], others: Sequence[Tensor] = ()) -> None:
        self._batches, self._others = batches, list(others)
        self.summed: list[Tensor] = []

    def batches(self) -> Iterator[Batch]:
        return iter(self._batches)

    def sum_over_ranks(self, tensor: Tensor) -> Tensor:
        self.summed.append(tensor.clone())
        return tensor + self._others.pop(0) if self._others else tensor


def dro_lt(progress: float = 0.0, **settings: Any) -> DROLT:
    torch.manual_seed(0)
    method = DROLT(create_model("resnet8", 3), COUNTS, **settings)
    method.set_progress(progress)
    return method


@pytest.mark.parametrize("target", [TARGET, torch.tensor([0, 0, 0, 0])])  # the latter without a tail image
def test_the_robust_loss_is_that_of_the_paper_s_equation(target: Tensor) -> None:
    torch.manual_seed(0)
    h, mu, eps, t = torch.randn(4, 5), torch.randn(3, 5), torch.tensor([0.5, 1.0, 2.0]), 0.7
    terms = []
    for c in target.unique():
        own = []
        for i in range(4):
            if target[i] == c:
                total = torch.zeros(())
                for j in range(4):
                    distance = (h[j] - mu[c]).square().sum().sqrt() + (eps[c] if target[j] == c else 0)
                    total = total + (-distance / t).exp()
                own.append(-((-((h[i] - mu[c]).norm() + eps[c]) / t).exp() / total).log())
        terms.append(sum(own) / len(own))
    found = robust_loss(h, target, centroids=mu, margins=eps, temperature=t)
    torch.testing.assert_close(found, torch.as_tensor(sum(terms) / len(terms)))


def test_with_one_image_of_each_class_and_no_margin_it_is_cross_entropy_of_images_for_centroids() -> None:
    torch.manual_seed(0)
    h, mu = torch.randn(3, 5), torch.randn(3, 5)
    found = robust_loss(h, torch.arange(3), centroids=mu, margins=torch.zeros(3))
    torch.testing.assert_close(found, F.cross_entropy(-torch.cdist(mu, h), torch.arange(3)))


def test_an_image_at_its_centroid_has_finite_gradients() -> None:
    h = torch.ones(2, 4, requires_grad=True)
    robust_loss(h, torch.tensor([0, 1]), centroids=torch.ones(2, 4), margins=torch.ones(2)).backward()
    assert h.grad is not None
    assert h.grad.isfinite().all()


def trained_parameters(method: DROLT) -> set[str]:
    method.zero_grad()
    method(BATCH).loss.backward()
    return {key for key, parameter in method.named_parameters() if parameter.grad is not None}


def test_the_stages_train_all_then_the_features_then_the_classifier() -> None:
    method = dro_lt()
    model = {f"model.{key}" for key, _ in method.model.named_parameters()}
    classifier = {"model.classifier.weight", "model.classifier.bias"}
    assert trained_parameters(method) == model
    method.set_progress(0.7)
    assert trained_parameters(method) == model - classifier | {"margins"}
    method.set_progress(0.95)
    assert trained_parameters(method) == classifier
    norms = [module for module in method.modules() if isinstance(module, nn.BatchNorm2d)]
    assert not any(norm.training for norm in norms)


def test_the_first_and_the_last_loss_are_cross_entropy_and_the_second_weighs_classes() -> None:
    method = dro_lt().eval()
    logits = method.model(BATCH.views[0])
    for progress in (0.0, 0.95):
        method.set_progress(progress)
        torch.testing.assert_close(method(BATCH).loss, F.cross_entropy(logits, TARGET))
    method.set_progress(0.7)
    expected = F.cross_entropy(logits, TARGET, weight=torch.tensor([1.0, 0.25, 0.05]))
    output = method(BATCH)
    torch.testing.assert_close(output.parts["classification"], expected.detach())
    robust = robust_loss(method.features(BATCH.views[0]), TARGET, centroids=method.centroids, margins=torch.ones(3))
    torch.testing.assert_close(output.parts["robustness"], robust.detach())


def test_centroids_are_the_means_of_what_evaluation_sees_over_all_ranks() -> None:
    alone, first, second = (dro_lt(0.7) for _ in range(3))
    parts = [BATCH, BATCH._replace(views=(BATCH.views[0] * 2,), target=TARGET.roll(1))]
    alone.start_epoch(Share(parts))
    share = Share(parts[1:])
    second.start_epoch(share)
    first.start_epoch(Share(parts[:1], share.summed))
    assert alone.training
    model = cast("HeadedModel", copy.deepcopy(alone.model).eval())
    images, targets = torch.cat([part.views[0] for part in parts]), torch.cat([part.target for part in parts])
    features = model.forward_head(model.forward_features(images), pre_logits=True)
    for c in range(3):
        torch.testing.assert_close(alone.centroids[c], features[targets == c].mean(0).detach())
    torch.testing.assert_close(first.centroids, alone.centroids)


def test_margins_stay_at_zero_or_more_and_have_no_weight_decay() -> None:
    method = dro_lt(0.7)
    assert method.parameter_groups()[1] == {"params": [method.margins], "weight_decay": 0.0}
    with torch.no_grad():
        method.margins.copy_(torch.tensor([-1.0, 0.5, 0.0]))
    method.after_step()
    assert method.margins.tolist() == [0.0, 0.5, 0.0]


@pytest.mark.parametrize(
    ("epochs", "stages"), [(300, (0, 200, 280)), (30, (0, 20, 28)), (4, (0, 2, 3)), (3, (0, 1, 2))]
)
def test_each_stage_has_whole_epochs(epochs: int, stages: tuple[int, ...]) -> None:
    method = dro_lt()
    method.plan(epochs)
    assert [round(start * epochs, 9) for start in method.stages] == list(stages)


def test_a_training_too_short_for_its_stages_is_refused() -> None:
    with pytest.raises(ValueError, match="epochs must be at least 3, one for each stage, got 2"):
        dro_lt().plan(2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"robust_from": 0.0}, r"robust_from must be more than 0\.0 and less than 1, got 0\.0"),
        ({"classifier_from": 0.5}, r"classifier_from must be more than 0\.66\d* and less than 1, got 0\.5"),
        ({"temperature": 0.0}, r"temperature must be positive and finite, got 0\.0"),
        ({"margin": -1.0}, r"margin must be a finite number of zero or more, got -1\.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dro_lt(**settings)
