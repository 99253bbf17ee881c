"""What `Method` promises, held for every name in the registry with its default settings."""

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from longtail.methods import METHODS, Method
from longtail.models import create_model

COUNTS = [40, 10, 2]

each_method = pytest.mark.parametrize("name", METHODS)


@dataclass(frozen=True)
class Images:
    views: tuple[Tensor, ...]
    target: Tensor


def method(name: str) -> Method:
    torch.manual_seed(0)
    return METHODS[name](create_model("resnet8", len(COUNTS)), COUNTS)


def images(name: str, views: int | None = None) -> Images:
    generator = torch.Generator().manual_seed(1)
    views = METHODS[name].num_views if views is None else views
    return Images(
        tuple(torch.randn(6, 3, 16, 16, generator=generator) for _ in range(views)),
        torch.tensor([0, 0, 0, 1, 1, 2]),
    )


@each_method
def test_a_step_gives_a_scalar_logits_and_named_parts(name: str) -> None:
    loss, logits, parts = method(name)(images(name))
    assert loss.shape == ()
    assert loss.isfinite()
    assert loss.requires_grad
    assert logits.shape == (6, len(COUNTS))
    assert not logits.requires_grad
    assert parts
    assert all(part.shape == () and not part.requires_grad for part in parts.values())


@each_method
def test_the_parts_sum_to_the_loss(name: str) -> None:
    loss, _, parts = method(name)(images(name))
    torch.testing.assert_close(torch.stack(list(parts.values())).sum(), loss.detach())


@each_method
def test_the_gradient_reaches_every_parameter(name: str) -> None:
    trained = method(name)
    trained(images(name)).loss.backward()
    without = [key for key, p in trained.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert without == []


@each_method
def test_the_same_step_twice_gives_the_same(name: str) -> None:
    first = method(name)
    second = copy.deepcopy(first)
    assert torch.equal(first(images(name)).loss, second(images(name)).loss)
    for key, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[key]), key


@each_method
def test_a_step_leaves_the_batch_alone(name: str) -> None:
    batch = images(name)
    before = copy.deepcopy(batch)
    method(name)(batch)
    assert all(map(torch.equal, batch.views, before.views))
    assert torch.equal(batch.target, before.target)


@each_method
def test_a_prediction_does_not_depend_on_the_rest_of_the_batch(name: str) -> None:
    trained = method(name)
    trained(images(name))
    trained.eval()
    x = images(name).views[0]
    with torch.no_grad():
        alone = torch.cat([trained.predict(x[i : i + 1]) for i in range(len(x))])
        torch.testing.assert_close(trained.predict(x), alone)


@each_method
def test_the_state_is_that_of_the_model_and_loads_again(name: str) -> None:
    trained, fresh = method(name), METHODS[name](create_model("resnet8", len(COUNTS)), COUNTS)
    assert {f"model.{key}" for key in trained.model.state_dict()} <= trained.state_dict().keys()
    fresh.load_state_dict(trained.state_dict())
    assert torch.equal(fresh(images(name)).loss, trained(images(name)).loss)


@each_method
def test_too_many_or_too_few_views_are_refused(name: str) -> None:
    needed = METHODS[name].num_views
    for views in (needed - 1, needed + 1):
        with pytest.raises(ValueError, match=rf"batch\.views must hold {needed} view.* got {views}"):
            method(name)(images(name, views))


@each_method
def test_progress_outside_the_training_is_refused(name: str) -> None:
    method(name).set_progress(1.0)
    with pytest.raises(ValueError, match=r"progress must be from 0 to 1, got 1\.5"):
        method(name).set_progress(1.5)
