"""The kinds of method that the contract must hold, each as a small method whose hooks run in the trainer's order."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.methods import EpochData, Method, MethodOutput, sum_parts
from longtail.methods.base import HeadedModel

COUNTS = [40, 10, 2]
SIZE, DIM, QUEUE = 12, 6, 24


class Network(nn.Module):
    """Without batch norms, so that micro-batches equal the whole batch."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(12, DIM), nn.Tanh()), nn.Linear(DIM, 3)

    def forward_features(self, x: Tensor) -> Tensor:
        features: Tensor = self.body(x)
        return features

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        logits: Tensor = x if pre_logits else self.classifier(x)
        return logits

    def get_classifier(self) -> nn.Module:
        return self.classifier

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


def network(seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return Network()


def images(seed: int, size: int = SIZE) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(3, (size,), generator=generator)
    return Batch((torch.randn(size, 3, 2, 2, generator=generator),), target, torch.arange(size))


def cut(batch: Batch, pieces: int) -> list[Batch]:
    rows = torch.arange(len(batch.target)).chunk(pieces)
    return [
        Batch(
            tuple(view[row] for view in batch.views),
            batch.target[row],
            batch.indices[row],
            {name: value[row] for name, value in batch.extra.items()},
        )
        for row in rows
    ]


def train(method: Method, *, steps: Sequence[int] = range(4), pieces: int = 1) -> dict[str, Tensor]:
    """Some steps of an epoch, by the table in the contract."""
    optimiser = torch.optim.SGD(method.parameter_groups(), lr=0.1)
    method.set_progress(0.0)
    for step in steps:
        torch.manual_seed(step)
        prepared = method.prepare(*(images(10 * step + number) for number in range(len(method.samplers))))
        optimiser.zero_grad()
        for micro in zip(*(cut(batch, pieces) for batch in prepared), strict=True):
            share = len(micro[0].target) / len(prepared[0].target)
            (share * method(*micro).loss).backward()
        optimiser.step()
        method.after_step()
    return method.state_dict()


def assert_equal_states(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for key, value in one.items():
        torch.testing.assert_close(other[key], value, msg=key)


class Momentum(Method):
    """MoCo's: keys of a momentum encoder, and a queue of those of earlier steps as negatives."""

    queue: Tensor
    fresh: Tensor

    def __init__(self, model: nn.Module, class_counts: Sequence[int], *, momentum: float = 0.9) -> None:
        super().__init__(model, class_counts)
        self.momentum = momentum
        self.encoder = copy.deepcopy(model).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(QUEUE, DIM)))
        self.register_buffer("fresh", torch.zeros(SIZE, DIM))

    def prepare(self, *batches: Batch) -> tuple[Batch, ...]:
        (batch,) = batches
        with torch.no_grad():
            features = cast("HeadedModel", self.encoder).forward_features(batch.views[0])
            self.fresh.copy_(F.normalize(features))
        return (batch._replace(extra={"key": self.fresh.clone()}),)

    def forward(self, *batches: Batch) -> MethodOutput:
        (batch,) = batches
        (x,) = self.views_of(batch)
        features = self.features(x)
        query = F.normalize(features)
        similar = torch.cat([(query * batch.extra["key"]).sum(1, keepdim=True), query @ self.queue.T], dim=1) / 0.1
        logits = self.model.get_submodule("classifier")(features)
        first = torch.zeros_like(batch.target)
        parts = {"class": F.cross_entropy(logits, batch.target), "contrast": F.cross_entropy(similar, first)}
        return sum_parts(logits, parts)

    @torch.no_grad()
    def after_step(self) -> None:
        for old, new in zip(self.encoder.parameters(), self.model.parameters(), strict=True):
            old.lerp_(new, 1 - self.momentum)
        self.queue.copy_(torch.cat([self.fresh, self.queue])[:QUEUE])


class Mixed(Method):
    """Mixup: images mixed within the whole batch of a step; the second labels go along."""

    def prepare(self, *batches: Batch) -> tuple[Batch, ...]:
        (batch,) = batches
        order = torch.randperm(len(batch.target))
        share = torch.rand(len(batch.target))
        weight = share.view(-1, 1, 1, 1)
        mixed = tuple(weight * view + (1 - weight) * view[order] for view in batch.views)
        return (batch._replace(views=mixed, extra={"second": batch.target[order], "share": share}),)

    def forward(self, *batches: Batch) -> MethodOutput:
        (batch,) = batches
        (x,) = self.views_of(batch)
        logits = self.model(x)
        share = batch.extra["share"]
        first = F.cross_entropy(logits, batch.target, reduction="none")
        second = F.cross_entropy(logits, batch.extra["second"], reduction="none")
        return sum_parts(logits, {"first": (share * first).mean(), "second": ((1 - share) * second).mean()})


@pytest.mark.parametrize("kind", [Momentum, Mixed])
@pytest.mark.parametrize("pieces", [2, 3])
def test_micro_batches_equal_the_whole_batch(kind: Callable[..., Method], pieces: int) -> None:
    whole, in_pieces = kind(network(), COUNTS), kind(network(), COUNTS)
    in_pieces.load_state_dict(whole.state_dict())
    assert_equal_states(train(whole), train(in_pieces, pieces=pieces))


@pytest.mark.parametrize("kind", [Momentum, Mixed])
def test_a_resumed_epoch_goes_on_exactly(kind: Callable[..., Method]) -> None:
    whole = kind(network(), COUNTS)
    resumed = copy.deepcopy(whole)
    state = copy.deepcopy(train(resumed, steps=range(2)))
    anew = kind(network(7), COUNTS)
    anew.load_state_dict(state)
    assert_equal_states(train(whole), train(anew, steps=range(2, 4)))


def test_the_queue_holds_the_keys_of_the_last_steps_newest_first() -> None:
    method = Momentum(network(), COUNTS)
    keys = []
    original = method.after_step

    def after_step() -> None:
        keys.append(method.fresh.clone())
        original()

    method.after_step = after_step  # type: ignore[method-assign]  # a spy
    train(method)
    assert torch.equal(method.queue, torch.cat(keys[::-1])[:QUEUE])


def test_the_momentum_encoder_is_not_trained_but_is_in_the_state() -> None:
    method = Momentum(network(), COUNTS)
    given = {id(parameter) for group in method.parameter_groups() for parameter in group["params"]}
    assert given == {id(parameter) for parameter in method.model.parameters()}
    assert "encoder.classifier.weight" in method.state_dict()


def test_the_loss_of_a_mixed_batch_is_cross_entropy_with_soft_labels() -> None:
    method = Mixed(network(), COUNTS)
    (batch,) = method.prepare(images(1))
    output = method(batch)
    share = batch.extra["share"][:, None]
    soft = share * F.one_hot(batch.target, 3) + (1 - share) * F.one_hot(batch.extra["second"], 3)
    torch.testing.assert_close(output.loss.detach(), F.cross_entropy(output.logits, soft))


class Centroids(Method):
    """DRO-LT's and others': the mean features of each class, found at the start of each epoch."""

    centroids: Tensor

    def __init__(self, model: nn.Module, class_counts: Sequence[int]) -> None:
        super().__init__(model, class_counts)
        self.register_buffer("centroids", torch.zeros(len(self.class_counts), DIM))

    @torch.no_grad()
    def start_epoch(self, data: EpochData) -> None:
        sums = torch.zeros_like(self.centroids)
        counts = torch.zeros(len(sums))
        for batch in data.batches():
            sums.index_add_(0, batch.target, self.features(batch.views[0]))
            counts += torch.bincount(batch.target, minlength=len(sums))
        self.centroids.copy_(data.sum_over_ranks(sums) / data.sum_over_ranks(counts)[:, None])

    def forward(self, *batches: Batch) -> MethodOutput:
        (batch,) = batches
        (x,) = self.views_of(batch)
        distances = torch.cdist(self.features(x), self.centroids)
        return sum_parts(-distances, {"class": F.cross_entropy(-distances, batch.target)})


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


def test_centroids_are_the_class_means_over_the_whole_set() -> None:
    method = Centroids(network(), COUNTS)
    everything = images(3, size=40)
    method.start_epoch(Share(cut(everything, 3)))
    features = method.features(everything.views[0])
    for k in range(3):
        torch.testing.assert_close(method.centroids[k], features[everything.target == k].mean(0).detach())


def test_two_ranks_find_the_same_centroids_as_one() -> None:
    alone, first, second = (Centroids(network(), COUNTS) for _ in range(3))
    halves = cut(images(3, size=40), 2)
    alone.start_epoch(Share(halves))
    share = Share(halves[1:])
    second.start_epoch(share)
    first.start_epoch(Share(halves[:1], share.summed))
    torch.testing.assert_close(first.centroids, alone.centroids)


def test_a_resumed_epoch_has_its_centroids_from_the_state() -> None:
    whole = Centroids(network(), COUNTS)
    whole.start_epoch(Share([images(3, size=40)]))
    anew = Centroids(network(7), COUNTS)
    anew.load_state_dict(copy.deepcopy(whole.state_dict()))
    assert_equal_states(train(whole), train(anew))


class Distilled(Method):
    """DiVE's and others': a finished run teaches."""

    needs = ("teacher",)

    def __init__(
        self, model: nn.Module, class_counts: Sequence[int], *, teacher: nn.Module | None = None, weight: float = 0.5
    ) -> None:
        super().__init__(model, class_counts)
        self._teacher, self.weight = [teacher], weight

    def forward(self, *batches: Batch) -> MethodOutput:
        (batch,) = batches
        (x,) = self.views_of(batch)
        (teacher,) = self._teacher
        assert teacher is not None
        logits = self.model(x)
        goal = teacher(x).softmax(1)
        parts = {
            "class": (1 - self.weight) * F.cross_entropy(logits, batch.target),
            "teacher": self.weight * F.cross_entropy(logits, goal),
        }
        return sum_parts(logits, parts)


def test_a_teacher_is_no_setting_and_no_part_of_what_is_trained_saved_or_loaded() -> None:
    teacher = network(5).eval().requires_grad_(False)
    method = Distilled(network(), COUNTS, teacher=teacher)
    before = copy.deepcopy(teacher.state_dict())
    assert method.settings() == {"weight": 0.5}
    assert set(method.state_dict()) == {f"model.{key}" for key in method.model.state_dict()}
    state = train(method)
    assert_equal_states(before, teacher.state_dict())
    loaded = Distilled(network(7), COUNTS, **method.settings())  # to predict, it needs no teacher
    loaded.load_state_dict(state)
    assert torch.equal(loaded.model(images(1).views[0]), method.model(images(1).views[0]))
    output = method(images(1))
    goal = teacher(images(1).views[0]).softmax(1)
    divergence = F.kl_div(output.logits.log_softmax(1), goal, reduction="batchmean")
    entropy = -(goal * goal.log()).sum(1).mean()
    torch.testing.assert_close(output.parts["teacher"], 0.5 * (divergence + entropy))
