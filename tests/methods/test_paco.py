import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.losses import balanced_softmax_loss
from longtail.methods import PaCo
from longtail.methods._momentum_encoder import KeyQueue, unit
from longtail.methods.paco import paco_loss
from longtail.models import create_model

COUNTS = [40, 10, 2]
PRIORS = torch.tensor(COUNTS) / 52
TARGET = torch.tensor([0, 0, 1, 2])


def batch(seed: int = 1) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    views = tuple(torch.randn(4, 3, 8, 8, generator=generator) for _ in range(2))
    return Batch(views, TARGET, torch.arange(4))


def paco(**settings: Any) -> PaCo:
    torch.manual_seed(0)
    return PaCo(create_model("resnet8", 3), COUNTS, **({"queue_size": 10} | settings))


def random_parts(filled: int) -> tuple[Tensor, Tensor, KeyQueue]:
    torch.manual_seed(3)
    queue = KeyQueue(6, 5)
    queue.push(unit(torch.randn(filled, 5)), torch.arange(filled) % 2)  # no key of the third class
    return torch.randn(4, 3, requires_grad=True), unit(torch.randn(4, 5)), queue


@pytest.mark.parametrize("filled", [0, 4, 6])
def test_the_loss_is_that_of_the_paper_s_equations(filled: int) -> None:
    logits, q, queue = random_parts(filled)
    alpha, beta, gamma, t = 0.3, 0.8, 0.6, 0.2
    expected = torch.zeros(())
    for i, y in enumerate(TARGET):
        contrasts = [(q[j], TARGET[j]) for j in range(4) if j != i]
        contrasts += [(queue.keys[j], queue.labels[j]) for j in range(filled)]
        total = (PRIORS * logits[i].exp()).sum()
        for other, _ in contrasts:
            total = total + gamma * (q[i] @ other / t).exp()
        positives = [other for other, label in contrasts if label == y]
        one = beta * (PRIORS[y] * logits[i, y].exp() / total).log()
        for other in positives:
            one = one + alpha * ((q[i] @ other / t).exp() / total).log()
        expected = expected - one / (beta + alpha * len(positives)) / 4
    found = paco_loss(
        logits,
        q,
        TARGET,
        queue,
        priors=PRIORS,
        sample_weight=alpha,
        centre_weight=beta,
        contrast_weight=gamma,
        temperature=t,
    )
    torch.testing.assert_close(sum(found), expected)


def test_without_samples_it_is_balanced_softmax_in_value_and_gradient() -> None:
    logits, q, queue = random_parts(4)
    found = sum(paco_loss(logits, q, TARGET, queue, priors=PRIORS, sample_weight=0.0, contrast_weight=0.0))
    expected = balanced_softmax_loss(logits, TARGET, class_counts=COUNTS)
    torch.testing.assert_close(found, expected)
    assert isinstance(found, Tensor)
    torch.testing.assert_close(torch.autograd.grad(found, logits), torch.autograd.grad(expected, logits))


def test_the_queue_holds_the_keys_of_the_last_batches_newest_first() -> None:
    method = paco().eval()
    keys = []
    for seed in range(3):
        given = batch(seed)
        method.prepare(given)
        keys.append(method.encoder(given.views[1]))
    torch.testing.assert_close(method.queue.keys, torch.cat(keys[::-1])[:10])
    assert torch.equal(method.queue.labels, TARGET.repeat(3)[:10])


def test_the_encoder_is_the_moving_average_of_the_network_and_gets_no_gradient() -> None:
    method = paco(momentum=0.9)
    before = copy.deepcopy(method.encoder)
    optimiser = torch.optim.SGD(method.parameter_groups(), lr=0.1)
    method(*method.prepare(batch())).loss.backward()
    optimiser.step()
    method.after_step()
    pairs = [(method.encoder.model, before.model, method.model)]
    pairs.append((method.encoder.projection, before.projection, method.projection))
    for slow, old, fast in pairs:
        for a, b, c in zip(slow.parameters(), old.parameters(), fast.parameters(), strict=True):
            torch.testing.assert_close(a, 0.9 * b + 0.1 * c)
            assert a.grad is None


def test_a_batch_without_a_tail_image_and_a_class_of_one_image_give_a_finite_loss() -> None:
    method = paco()
    views = batch().views
    for target in (torch.zeros(4, dtype=torch.long), torch.tensor([0, 0, 0, 2])):
        output = method(*method.prepare(Batch(views, target, torch.arange(4))))
        output.loss.backward()
        assert output.loss.isfinite()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in method.model.parameters())


def test_a_queue_smaller_than_a_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="queue_size must be at least the 4 images of a batch, got 3"):
        paco(queue_size=3).prepare(batch())


def test_a_model_without_a_linear_classifier_is_refused() -> None:
    with pytest.raises(ValueError, match=r"model must have forward_features .* to learn by contrast, got Sequential"):
        PaCo(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), COUNTS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sample_weight": -1.0}, r"sample_weight must be a finite number of zero or more, got -1\.0"),
        ({"centre_weight": 0.0}, r"centre_weight must be positive and finite, got 0\.0"),
        ({"temperature": 0.0}, r"temperature must be positive and finite, got 0\.0"),
        ({"projection_size": 0}, "projection_size must be at least 1, got 0"),
        ({"momentum": 1.5}, r"momentum must be from 0 to 1, got 1\.5"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        paco(**settings)
