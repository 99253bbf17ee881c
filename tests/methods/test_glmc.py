from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from longtail.data.views import Batch
from longtail.methods import GLMC
from longtail.models import create_model
from longtail.training.microbatches import cut_microbatches

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 0, 1, 1, 2])
IMAGES = torch.linspace(-1, 1, 6 * 3 * 64).reshape(6, 3, 8, 8)
BATCH = Batch((IMAGES.sin(), IMAGES.cos()), TARGET, torch.arange(6))


def glmc(progress: float = 0.0, **settings: Any) -> GLMC:
    torch.manual_seed(0)
    method = GLMC(create_model("resnet8", 3), COUNTS, **settings).eval()
    method.set_progress(progress)
    return method


def prepared(method: GLMC, seed: int = 1) -> Batch:
    torch.manual_seed(seed)
    return method.prepare(BATCH)[0]


@pytest.mark.parametrize("seed", range(5))
def test_both_views_show_the_same_pairs_one_averaged_and_one_with_a_box(seed: int) -> None:
    # Each pixel of image i is i in both views, so that the mixed images tell whom they are made of.
    images = torch.arange(6.0).view(6, 1, 1, 1).expand(6, 3, 8, 8)
    torch.manual_seed(seed)
    (batch,) = glmc().prepare(Batch((images, images), torch.arange(6) % 3, torch.arange(6)))
    share = batch.extra["global_share"]
    partners = ((batch.views[0][:, 0, 0, 0] - share * torch.arange(6)) / (1 - share)).round().long()
    assert torch.equal(batch.extra["partner"], partners % 3)
    assert sorted(partners.tolist()) == list(range(6))
    assert torch.allclose(batch.views[0].amin((1, 2, 3)), batch.views[0].amax((1, 2, 3)))
    for i, j in enumerate(partners.tolist()):
        assert bool(((batch.views[1][i] == i) | (batch.views[1][i] == j)).all())
        if i != j:
            assert float((batch.views[1][i] == i).float().mean()) == pytest.approx(float(batch.extra["local_share"][i]))


def test_the_box_has_the_area_that_mixup_leaves_to_the_partner() -> None:
    images, shares = torch.zeros(6, 3, 64, 64), []
    for seed in range(40):
        method = glmc()
        torch.manual_seed(seed)
        (batch,) = method.prepare(Batch((images, images), TARGET, torch.arange(6)))
        shares.append((float(batch.extra["global_share"][0]), float(batch.extra["local_share"][0])))
    # What the edge of the image cuts off of a box counts as the image's own; a box that is whole has its area.
    assert all(whole - 0.03 < local for whole, local in shares)
    assert sum(abs(whole - local) < 0.03 for whole, local in shares) > 5


@pytest.mark.parametrize("progress", [0.0, 0.5, 1.0])
def test_the_loss_is_that_of_the_equations(progress: float) -> None:
    method = glmc(progress)
    batch = prepared(method)
    weights = torch.tensor(COUNTS).float() ** -1.2
    weights = 3 * weights / weights.sum()
    plain = weighted = torch.zeros(())
    projected = []
    for view, share in zip(batch.views, (batch.extra["global_share"], batch.extra["local_share"]), strict=True):
        h = method.features(view)
        soft = share[:, None] * F.one_hot(TARGET, 3) + (1 - share[:, None]) * F.one_hot(batch.extra["partner"], 3)
        plain = plain - (soft * method.conventional(h).log_softmax(1)).sum(1).mean()
        weighted = weighted - (soft * weights * method.model(view).log_softmax(1)).sum(1).mean()
        projected.append(method.projection(h))
    (p_g, p_l), (u_g, u_l) = projected, [method.prediction(p) for p in projected]
    cosines = F.cosine_similarity(u_g, p_l).mean() + F.cosine_similarity(u_l, p_g).mean()
    alpha = 1 - progress**2
    expected = alpha * plain + (1 - alpha) * weighted - 4 * cosines
    torch.testing.assert_close(method(batch).loss, expected)


def test_without_weights_and_consistency_it_is_cross_entropy_with_soft_labels_of_both_views() -> None:
    method = glmc(1.0, consistency_weight=0.0, weight_power=0.0)
    batch = prepared(method)
    expected = torch.zeros(())
    for view, share in zip(batch.views, (batch.extra["global_share"], batch.extra["local_share"]), strict=True):
        soft = share[:, None] * F.one_hot(TARGET, 3) + (1 - share[:, None]) * F.one_hot(batch.extra["partner"], 3)
        expected = expected + F.cross_entropy(method.model(view), soft)
    torch.testing.assert_close(method(batch).loss, expected)


def test_the_goal_of_the_consistency_gets_no_gradient() -> None:
    method = glmc(0.5)
    nn.init.zeros_(method.prediction.weight)  # then nothing of the consistency reaches the projection but by its goal
    method(prepared(method)).loss.backward()
    assert method.projection.weight.grad is not None
    torch.testing.assert_close(method.projection.weight.grad, torch.zeros_like(method.projection.weight))


def test_micro_batches_have_the_gradient_of_the_batch() -> None:
    method = glmc(0.5)
    batch = prepared(method)
    whole = torch.autograd.grad(method(batch).loss, list(method.parameters()))
    for micro in cut_microbatches((batch,), 3):
        (method(*micro).loss * len(micro[0].target) / 6).backward()
    for parameter, gradient in zip(method.parameters(), whole, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-5)


def test_what_is_deployed_has_the_model_s_own_parameters_alone() -> None:
    plain = create_model("resnet8", 3)
    assert glmc().model.state_dict().keys() == plain.state_dict().keys()


def test_a_model_without_a_linear_classifier_is_refused() -> None:
    model = create_model("resnet8", 3)
    model.classifier = nn.Sequential(nn.Linear(64, 3))
    with pytest.raises(
        ValueError, match="model must have a linear classifier for a second one beside it, got Sequential"
    ):
        GLMC(model, COUNTS)


@pytest.mark.parametrize("name", ["consistency_weight", "weight_power"])
def test_settings_that_make_no_sense_are_refused(name: str) -> None:
    settings: dict[str, Any] = {name: -1.0}
    with pytest.raises(ValueError, match=rf"{name} must be a finite number of zero or more, got -1\.0"):
        glmc(**settings)
