"""The base method of decoupled training: all of its first stage."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.data.views import Batch
from longtail.methods import ERM, METHODS, Decoupled, EpochData
from tests.support.two_stages import COUNTS, FIRST, TARGET, images, network, sgd, train, two_stages

each_base = pytest.mark.parametrize("base", ["erm", "compound_bn"])


@each_base
def test_the_first_stage_is_the_base_method(base: str) -> None:
    ours, theirs = two_stages(base=base), METHODS[base](network(), COUNTS)
    assert ours.views == theirs.views
    assert train(ours, sgd(ours), range(FIRST)) == train(theirs, sgd(theirs), range(FIRST), of=FIRST)
    assert ours.samplers == ("instance",)


class Staged(ERM):
    """A base with a stage of its own, at half of its training."""

    stages = (0.0, 0.5)
    lr_scale = 0.5

    def set_progress(self, progress: float) -> None:
        super().set_progress(progress)
        self.samplers = ("reverse",) if progress >= 0.5 else ("instance",)
        self.hooks: list[str] = []

    def plan(self, epochs: int) -> None:
        if epochs < 4:
            raise ValueError(f"epochs must be at least 4, got {epochs}")

    def start_epoch(self, data: EpochData) -> None:
        assert list(data.batches()) == []
        self.hooks.append("start_epoch")

    def prepare(self, *batches: Batch) -> tuple[Batch, ...]:
        self.hooks.append("prepare")
        return batches

    def after_step(self) -> None:
        self.hooks.append("after_step")

    def epoch_row(self) -> dict[str, float]:
        return {"hooks": len(self.hooks)}

    def parameter_groups(self) -> list[dict[str, Any]]:
        first, *rest = self.parameters()
        return [{"params": [first], "weight_decay": 0.0}, {"params": rest}]


@pytest.fixture
def _staged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(METHODS, "_units", METHODS._units | {"staged": Staged})


@pytest.mark.usefixtures("_staged")
def test_the_base_s_own_stages_and_hooks_are_those_of_the_first_stage() -> None:
    method = Decoupled(network(), COUNTS, base="staged", representation_share=0.7)
    assert isinstance(method.base_method, Staged)
    with pytest.raises(ValueError, match="epochs must be at least 4, got 3"):
        method.plan(4)
    method.plan(20)
    assert method.stages == (0.0, 7 / 20, 14 / 20)
    seen = []
    for epoch in (0, 6, 7, 13, 14):
        method.set_progress(epoch / 20)
        method.start_epoch(NoData())
        method.prepare(*images(method))
        method.after_step()
        seen.append((method.samplers[0], method.lr_scale, method.epoch_row()["hooks"]))
    assert seen == [
        ("instance", 0.5, 3),
        ("instance", 0.5, 3),
        ("reverse", 0.5, 3),
        ("reverse", 0.5, 3),
        ("class_balanced", 1.0, 3),
    ]
    assert method.base_method.hooks == ["start_epoch", "prepare", "after_step"]
    groups = method.parameter_groups()
    assert [len(group["params"]) for group in groups] == [1, len(list(method.parameters())) - 1]
    assert groups[0]["params"][0] is method.model.get_parameter("conv.weight")
    assert set(method.state_dict()) == {"stage", *(f"model.{key}" for key in method.model.state_dict())}


class NoData:
    def batches(self) -> Iterator[Batch]:
        return iter(())

    def sum_over_ranks(self, tensor: Tensor) -> Tensor:
        return tensor


class Taught(ERM):
    needs = ("teacher",)


def test_a_base_that_needs_a_finished_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(METHODS, "_units", METHODS._units | {"taught": Taught})
    with pytest.raises(ValueError, match=r"needs no finished run, got 'taught' .*another base such as 'erm'"):
        Decoupled(network(), COUNTS, base="taught")


def test_two_batches_a_step_become_one_with_the_second_stage() -> None:
    method = Decoupled(network(), COUNTS, base="bbn")
    samplers = [method.samplers]
    assert set(method(*images(method)).parts) == {"conventional", "rebalancing"}
    method.set_progress(0.8)
    samplers.append(method.samplers)
    assert samplers == [("instance", "reverse"), ("class_balanced",)]
    output = method(*images(method))
    torch.testing.assert_close(output.loss.detach(), F.cross_entropy(output.logits, TARGET))


def test_the_base_s_own_schedules_run_over_the_first_stage() -> None:
    settings = {"loss": "ldam", "loss_settings": {"reweight_from": 0.5, "scale": 1.0}}
    method = Decoupled(network(), COUNTS, base_settings=settings)
    assert isinstance(method.base_method, ERM)
    method.set_progress(0.3)
    assert not method.base_method.criterion.reweight
    method.set_progress(0.4)
    assert method.base_method.criterion.reweight
