"""What `Method` promises, held for every name in the registry with its default settings."""

import copy
import inspect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import yaml
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from longtail.methods import METHODS, Method
from longtail.models import create_model

COUNTS = [40, 10, 2]

PROGRESS = [0.0, 0.25, 0.5, 0.75, 0.9, 1.0]

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
    views = len(method(name).views) if views is None else views
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
    needed = len(method(name).views)
    for views in (needed - 1, needed + 1):
        with pytest.raises(ValueError, match=rf"batch\.views must hold {needed} view.* got {views}"):
            method(name)(images(name, views))


@each_method
def test_progress_outside_the_training_is_refused(name: str) -> None:
    method(name).set_progress(1.0)
    with pytest.raises(ValueError, match=r"progress must be from 0 to 1, got 1\.5"):
        method(name).set_progress(1.5)


@each_method
def test_settings_are_keywords_that_a_yaml_file_can_hold(name: str) -> None:
    model, class_counts, *settings = inspect.signature(METHODS[name]).parameters.values()
    assert (model.name, class_counts.name) == ("model", "class_counts")
    for setting in settings:
        assert setting.kind == inspect.Parameter.KEYWORD_ONLY, setting.name
        assert yaml.safe_load(yaml.safe_dump(setting.default)) == setting.default, setting.name


@each_method
def test_views_are_weak_or_strong_and_the_sampler_is_named_at_any_time(name: str) -> None:
    trained = method(name)
    views = trained.views
    assert views
    assert set(views) <= {"weak", "strong"}
    for progress in PROGRESS:
        trained.set_progress(progress)
        assert trained.views == views
        assert trained.sampler in {"instance", "class_balanced"}


@each_method
def test_the_schedule_position_is_a_share_that_grows_but_for_new_starts(name: str) -> None:
    trained = method(name)
    positions = [trained.schedule_position(i / 100) for i in range(101)]
    assert all(0 <= position <= 1 for position in positions)
    assert positions[0] == 0
    assert positions[-1] == 1
    assert all(after > before or after == 0 for before, after in itertools.pairwise(positions))
    with pytest.raises(ValueError, match=r"progress must be from 0 to 1, got 1\.5"):
        trained.schedule_position(1.5)


@each_method
@pytest.mark.parametrize("progress", PROGRESS)
def test_a_fresh_method_goes_on_from_the_state_and_the_progress(name: str, progress: float) -> None:
    trained = method(name)
    trained.set_progress(progress)
    trained(images(name))
    torch.manual_seed(5)  # other weights and other draws than the first had
    fresh = METHODS[name](create_model("resnet8", len(COUNTS)), COUNTS)
    fresh.load_state_dict(copy.deepcopy(trained.state_dict()))
    for _ in range(2):  # once or twice is the same
        fresh.set_progress(progress)
    assert fresh.sampler == trained.sampler
    assert torch.equal(fresh(images(name)).loss, trained(images(name)).loss)
    for key, value in trained.state_dict().items():
        assert torch.equal(value, fresh.state_dict()[key]), key
    assert [m.training for m in fresh.modules()] == [m.training for m in trained.modules()]


@each_method
def test_the_gradient_reaches_every_parameter_under_autocast(name: str) -> None:
    """A weight's copy in half precision, kept from a pass without gradients, would cut it off."""
    trained = method(name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = trained(images(name)).loss
    assert loss.dtype == torch.float32
    loss.backward()
    assert [key for key, parameter in trained.named_parameters() if parameter.grad is None] == []


class OneLayer(nn.Module):
    """The least that a model is: compiling the four passes of a ResNet takes too long for a test."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.classifier = nn.Linear(8, len(COUNTS))

    def get_classifier(self) -> nn.Module:
        return self.classifier

    def forward_features(self, x: Tensor) -> Tensor:
        features: Tensor = self.norm(self.conv(x)).relu()
        return features

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        features = x.mean((2, 3))
        logits: Tensor = features if pre_logits else self.classifier(features)
        return logits

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


@each_method
def test_a_compiled_model_takes_the_same_step(name: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    eager = METHODS[name](OneLayer(), COUNTS)
    compiled = copy.deepcopy(eager)
    compiled.model.compile(backend="aot_eager", fullgraph=True)
    for _ in range(2):
        losses = [each(images(name)).loss for each in (eager, compiled)]
        torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-4)
        losses[0].backward()
        losses[1].backward()
    for (key, parameter), other in zip(compiled.named_parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-3, atol=1e-3, msg=key)
    for key, value in eager.state_dict().items():
        torch.testing.assert_close(compiled.state_dict()[key], value, rtol=1e-4, atol=1e-4, msg=key)


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@each_method
@pytest.mark.usefixtures("one_rank")
def test_steps_in_every_stage_under_ddp_are_those_without(name: str) -> None:
    plain, inner = method(name), method(name)
    wrapped = DistributedDataParallel(inner, find_unused_parameters=True)
    optimisers = [torch.optim.SGD(each.parameters(), lr=0.05, weight_decay=0.1) for each in (plain, inner)]
    for progress in (0.0, 0.0, 0.9, 0.9):
        plain.set_progress(progress)
        inner.set_progress(progress)
        for each, optimiser in zip((plain, wrapped), optimisers, strict=True):
            optimiser.zero_grad()
            each(images(name)).loss.backward()
            optimiser.step()
    for key, value in plain.state_dict().items():
        torch.testing.assert_close(inner.state_dict()[key], value, msg=key)
