from typing import Any

import pytest
import torch
import torch.nn.functional as F

from longtail.losses import class_weights
from longtail.methods import WeightBalancing
from longtail.methods.weight_balancing import clip_rows
from tests.support.one_step import BATCH, COUNTS, TARGET, build, moved_by_a_step


def test_the_loss_is_cross_entropy_then_weighted_with_a_decay_of_the_classifier() -> None:
    method = build(WeightBalancing, classifier_decay=0.3, max_norm=100.0).eval()
    logits = method.model(BATCH.views[0]).detach()
    torch.testing.assert_close(method(BATCH).loss.detach(), F.cross_entropy(logits, TARGET))
    method.set_progress(0.9)
    weight, bias = (method.model.get_parameter(f"classifier.{name}").detach() for name in ("weight", "bias"))
    decay = 0.3 / 2 * (weight.norm() ** 2 + bias.norm() ** 2)
    for given in ((BATCH,), method.prepare(BATCH)):
        output = method(*given)
        expected = F.cross_entropy(logits, TARGET, weight=class_weights(COUNTS))
        torch.testing.assert_close(output.parts["classification"], expected)
        torch.testing.assert_close(output.parts["decay"], decay)


def test_without_decay_weights_or_a_ball_the_second_stage_is_cross_entropy() -> None:
    method = build(WeightBalancing, classifier_decay=0.0, max_norm=100.0, beta=0.0).eval()
    method.set_progress(0.9)
    torch.testing.assert_close(method(BATCH).loss, F.cross_entropy(method.model(BATCH.views[0]), TARGET))


def test_rows_are_clipped_as_torch_s_renorm_does() -> None:
    weight = torch.randn(5, 8) * torch.tensor([0.1, 0.5, 1.0, 2.0, 0.0])[:, None]
    expected = torch.renorm(weight, p=2, dim=0, maxnorm=1.5)
    clip_rows(weight, 1.5)
    torch.testing.assert_close(weight, expected)


def test_weights_are_short_from_the_start_of_the_second_stage_and_free_before() -> None:
    method = build(WeightBalancing, max_norm=0.1)
    moved_by_a_step(method)
    weight = method.model.get_parameter("classifier.weight")
    assert weight.norm(dim=1).max() > 0.1
    method.set_progress(0.9)
    assert weight.norm(dim=1).max() <= 0.1 + 1e-6
    assert moved_by_a_step(method) == {"model.classifier.weight", "model.classifier.bias"}
    assert weight.norm(dim=1).max() <= 0.1 + 1e-6


def test_the_authors_radius_is_a_tenth_of_the_way_from_the_shortest_to_the_longest_class_and_stays() -> None:
    method = build(WeightBalancing, max_norm=None)
    weight = method.model.get_parameter("classifier.weight")
    with torch.no_grad():
        weight.copy_(F.normalize(weight, dim=1) * torch.tensor([3.0, 2.0, 1.0])[:, None])
    method.set_progress(0.9)
    torch.testing.assert_close(weight.norm(dim=1).detach(), torch.tensor([1.2, 1.2, 1.0]))
    with torch.no_grad():
        weight.mul_(10)
    resumed = build(WeightBalancing, max_norm=None)
    resumed.load_state_dict(method.state_dict())
    resumed.set_progress(0.95)
    resumed.after_step()
    torch.testing.assert_close(resumed.model.get_parameter("classifier.weight").norm(dim=1), torch.full((3,), 1.2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_norm": 0.0}, r"max_norm must be positive and finite, got 0\.0"),
        ({"classifier_decay": -1.0}, r"classifier_decay must be a finite number of zero or more, got -1\.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(WeightBalancing, **settings)
