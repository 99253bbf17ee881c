import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from longtail.data.views import Batch
from longtail.methods import SSD
from longtail.methods._momentum_encoder import KeyQueue, unit
from longtail.methods.ssd import masked_contrast
from longtail.models import create_model

COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 1, 2])
FIRST, SECOND, THIRD = 0.1, 0.5, 0.9


def batch(seed: int = 1) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    views = tuple(torch.randn(4, 3, 8, 8, generator=generator) for _ in range(2))
    return Batch(views, TARGET, torch.arange(4))


def ssd(progress: float = FIRST, **settings: Any) -> SSD:
    torch.manual_seed(0)
    method = SSD(create_model("resnet8", 3), COUNTS, **({"queue_size": 10, "projection_size": 6} | settings))
    method.set_progress(progress)
    return method


def step(method: SSD, seed: int = 1) -> None:
    optimiser = torch.optim.SGD(method.parameter_groups(), lr=0.1)
    method(*method.prepare(batch(seed))).loss.backward()
    optimiser.step()
    optimiser.zero_grad()
    method.after_step()


def test_the_contrast_is_that_of_the_paper_s_equation() -> None:
    torch.manual_seed(0)
    q, k, queue = unit(torch.randn(4, 5)), unit(torch.randn(4, 5)), KeyQueue(6, 5)
    queue.push(unit(torch.randn(4, 5)), torch.tensor([0, 1, 1, 2]))
    expected = torch.zeros(())
    for i, y in enumerate(TARGET):
        positive = (q[i] @ k[i] / 0.2).exp()
        others = sum((q[i] @ queue.keys[j] / 0.2).exp() for j in range(4) if queue.labels[j] != y)
        expected = expected - (positive / (positive + others)).log() / 4
    torch.testing.assert_close(masked_contrast(q, k, TARGET, queue, temperature=0.2), expected)


def test_images_of_one_class_alone_have_no_contrast() -> None:
    q, queue = unit(torch.randn(4, 5)).requires_grad_(), KeyQueue(6, 5)
    target = torch.zeros(4, dtype=torch.long)
    queue.push(q.detach(), target)
    loss = masked_contrast(q, q.detach(), target, queue, temperature=0.1)
    loss.backward()
    torch.testing.assert_close(loss.detach(), torch.zeros(()))
    assert q.grad is not None
    assert q.grad.isfinite().all()


def test_with_scales_of_one_stage_two_is_cross_entropy_of_the_network_in_eval() -> None:
    method = ssd(SECOND)
    expected = F.cross_entropy(copy.deepcopy(method.model).eval()(batch().views[0]), TARGET)
    torch.testing.assert_close(method(batch()).loss.detach(), expected.detach())
    assert method.samplers == ("class_balanced",)
    assert method.lr_scale == 2


def test_stage_two_trains_the_scales_alone() -> None:
    method = ssd(SECOND)
    before = copy.deepcopy(method.state_dict())
    step(method)
    changed = {key for key, value in method.state_dict().items() if not torch.equal(value, before[key])}
    assert changed == {"scales"}


def test_in_stage_three_a_new_network_learns_from_the_scaled_answers_of_the_first() -> None:
    method = ssd()
    start = copy.deepcopy(method.model.state_dict())
    step(method)
    with torch.no_grad():
        method.scales.copy_(torch.tensor([0.5, 1.0, 2.0]))
    first = copy.deepcopy(method.model).eval()
    method.set_progress(THIRD)
    assert all(torch.equal(value, start[key]) for key, value in method.model.state_dict().items())
    method.model.eval()
    images = batch().views[0]
    soft = (torch.tensor([0.5, 1.0, 2.0]) * first(images) / 2).softmax(1)
    logits = method.model(images)
    kl = (soft * (soft.log() - (logits / 2).log_softmax(1))).sum(1).mean()
    output = method(batch())
    torch.testing.assert_close(output.parts["distillation"], 4 * kl.detach())
    hard = F.cross_entropy(method.hard_head(method.features(images)), TARGET)
    torch.testing.assert_close(output.parts["classification"], hard.detach())


def test_networks_change_places_once_also_after_resuming_in_any_stage() -> None:
    whole = ssd()
    for number, progress in enumerate((FIRST, SECOND, THIRD, THIRD)):
        whole.set_progress(progress)
        step(whole, number)
    for stop in range(1, 4):
        before = ssd()
        for number, progress in enumerate((FIRST, SECOND, THIRD)[:stop]):
            before.set_progress(progress)
            step(before, number)
        anew = ssd()
        anew.load_state_dict(copy.deepcopy(before.state_dict()))
        for number, progress in list(enumerate((FIRST, SECOND, THIRD, THIRD)))[stop:]:
            anew.set_progress(progress)
            step(anew, number)
        for key, value in whole.state_dict().items():
            assert torch.equal(anew.state_dict()[key], value), (stop, key)


def test_micro_batches_of_the_first_stage_equal_the_whole_batch() -> None:
    method = ssd().eval()  # batch norms apart
    (whole,) = method.prepare(batch())
    halves = [
        Batch(tuple(view[rows] for view in whole.views), TARGET[rows], rows, {"key": whole.extra["key"][rows]})
        for rows in torch.arange(4).chunk(2)
    ]
    torch.testing.assert_close(sum(method(half).loss for half in halves) / 2, method(whole).loss)


def test_a_training_too_short_and_a_model_without_a_classifier_are_refused() -> None:
    with pytest.raises(ValueError, match="epochs must be at least 3, one for each stage, got 2"):
        ssd().plan(2)
    with pytest.raises(ValueError, match=r"model must have forward_features .* to teach one like it"):
        SSD(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), COUNTS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"contrast_weight": 0.0}, r"contrast_weight must be positive and finite, got 0\.0"),
        ({"temperature": -1.0}, r"temperature must be positive and finite, got -1\.0"),
        ({"distill_from": 0.3}, r"distill_from must be more than 0\.49\d* and less than 1, got 0\.3"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ssd(**settings)
