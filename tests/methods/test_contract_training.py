"""What `Method` promises of a training: on resuming, compiled, in micro-batches, on two ranks; for every method."""

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from longtail.data.views import Batch
from longtail.methods import METHODS, Method
from longtail.methods._norms import StatisticsLayer
from longtail.nn import CompoundBatchNorm
from longtail.training.microbatches import cut_microbatches
from tests.support.every_method import (
    COUNTS,
    MIXES,
    NETWORKS,
    PROGRESS,
    TrainingSet,
    assert_same_state,
    batches,
    each_method,
    method,
    sgd,
    step,
    trainable,
)

Hook = Callable[[Method, torch.optim.Optimizer, dict[str, tuple[Batch, ...]]], None]


def hooks_of_two_epochs(progress: float) -> Iterator[tuple[str, Hook]]:
    """In the trainer's order, as the contract's table has them; the last argument of each holds a step's batches."""

    def set_progress(position: float) -> Hook:
        return lambda trained, _, __: trained.set_progress(position)

    def prepare(seed: int) -> Hook:
        def call(trained: Method, _: torch.optim.Optimizer, held: dict[str, tuple[Batch, ...]]) -> None:
            torch.manual_seed(seed)
            held["batches"] = trained.prepare(*batches(trained, seed=seed))

        return call

    def forward(trained: Method, optimiser: torch.optim.Optimizer, held: dict[str, tuple[Batch, ...]]) -> None:
        optimiser.zero_grad()
        trained(*held["batches"]).loss.backward()
        optimiser.step()

    for epoch in range(2):
        yield "set_progress", set_progress(progress + 0.05 * epoch)
        yield "start_epoch", lambda trained, _, __: trained.start_epoch(TrainingSet(trained))
        for number in range(2):
            yield "prepare", prepare(10 * epoch + number)
            yield "forward", forward
            yield "after_step", lambda trained, _, __: trained.after_step()


@each_method
@pytest.mark.parametrize("progress", [0.3, 0.78])  # 0.78: a stage of `decoupled` begins with the second epoch
def test_a_method_built_anew_goes_on_exactly_after_any_hook(name: str, progress: float) -> None:
    hooks = list(hooks_of_two_epochs(progress))
    whole = method(name)
    optimiser, held = sgd(whole), dict[str, tuple[Batch, ...]]()
    saved = []
    position = 0.0
    for number, (hook, call) in enumerate(hooks):
        call(whole, optimiser, held)
        if hook == "set_progress":
            position = progress if number == 0 else progress + 0.05
        states = copy.deepcopy((whole.state_dict(), optimiser.state_dict()))
        saved.append((*states, dict(held), position))
    for number in (1, 2, 3, 4, 7, 8, 9, 10):  # each kind of hook, in both epochs
        state, momenta, batch, position = saved[number]
        fresh = method(name, seed=5)  # other weights and other draws than the first had
        resumed = sgd(fresh)
        fresh.load_state_dict(copy.deepcopy(state))
        resumed.load_state_dict(copy.deepcopy(momenta))
        for _ in range(2):  # once or twice is the same
            fresh.set_progress(position)
        held = dict(batch)
        for _, call in hooks[number + 1 :]:
            call(fresh, resumed, held)
        assert fresh.samplers == whole.samplers
        assert_same_state(fresh, whole)
        assert [m.training for m in fresh.modules()] == [m.training for m in whole.modules()]


@each_method
def test_the_gradient_reaches_every_parameter_under_autocast(name: str) -> None:
    """A weight's copy in half precision, kept from a pass without gradients, would cut it off."""
    trained = method(name)
    reached = set[str]()
    for progress in PROGRESS if trained.skips_parameters else (0.0,):
        trained.set_progress(progress)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = step(trained).loss
        assert loss.dtype == torch.float32
        loss.backward()
        reached |= {key for key, parameter in trainable(trained).items() if parameter.grad is not None}
    assert trainable(trained).keys() - reached == set()


class OneLayer(nn.Module):
    """The least that a model is: compiling the four passes of a ResNet takes too long for a test."""

    def __init__(self) -> None:
        super().__init__()
        # The names are those of timm's ResNets, by which methods find stages.
        self.conv1, self.bn1, self.act1, self.maxpool = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Identity()
        self.layer1, self.layer2 = nn.Sequential(nn.Identity()), nn.Sequential(nn.Identity())
        block = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.layer3, self.layer4 = nn.Sequential(nn.Identity()), nn.Sequential(block)
        self.global_pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(8, len(COUNTS))

    def get_classifier(self) -> nn.Module:
        return self.fc

    def forward_features(self, x: Tensor) -> Tensor:
        features: Tensor = self.layer4(self.act1(self.bn1(self.conv1(x))))
        return features

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        features: Tensor = self.global_pool(x)
        logits: Tensor = features if pre_logits else self.fc(features)
        return logits

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


@each_method
def test_a_compiled_model_takes_the_same_step(name: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    eager = method(name, model=None if name in NETWORKS else OneLayer())
    compiled = copy.deepcopy(eager)
    compiled.model.compile(backend="aot_eager", fullgraph=True)
    for _ in range(2):
        losses = [step(each).loss for each in (eager, compiled)]
        torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-4)
        losses[0].backward()
        losses[1].backward()
    for (key, parameter), other in zip(compiled.named_parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-3, atol=1e-3, msg=key)
    for key, value in eager.state_dict().items():
        torch.testing.assert_close(compiled.state_dict()[key], value, rtol=1e-4, atol=1e-4, msg=key)


@each_method
@pytest.mark.parametrize("progress", [0.0, 0.4, 0.9])
def test_micro_batches_have_the_gradient_of_the_batch(name: str, progress: float) -> None:
    """Batch norms apart, which see a micro-batch at a time; a method that allows no micro-batches gets none."""
    trained = method(name)
    trained.set_progress(progress)
    for module in trained.modules():
        if isinstance(module, StatisticsLayer):
            module.eval()
    torch.manual_seed(1)
    prepared = trained.prepare(*batches(trained))
    found = []
    for number in (1, 3 if trained.microbatches else 1):
        trained.zero_grad()
        for micro in cut_microbatches(prepared, number):
            (trained(*micro).loss * len(micro[0].target) / len(prepared[0].target)).backward()
        found.append({key: p.grad for key, p in trainable(trained).items() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    for key, gradient in found[0].items():
        torch.testing.assert_close(found[1][key], gradient, rtol=1e-3, atol=1e-5, msg=key)


def train_in_every_stage(name: str, rank: int | None = None) -> dict[str, Tensor]:
    """Steps with half of the batch of two ranks, under DDP; or with all of it alone."""
    trained = method(name)
    # The contract leaves plain batch norms to each rank; compound ones are synchronised.
    norms = [m for m in trained.modules() if isinstance(m, StatisticsLayer) and not isinstance(m, CompoundBatchNorm)]
    wrapped: nn.Module = trained if rank is None else DistributedDataParallel(trained, find_unused_parameters=True)
    optimiser = sgd(trained)
    for number, progress in enumerate((0.0, 0.4, 0.9)):
        trained.set_progress(progress)
        for norm in norms:
            norm.eval()
        given = batches(trained, seed=number)
        torch.manual_seed(number)
        if name in MIXES:
            given = trained.prepare(*given)
        if rank is not None:
            given = tuple(part(batch, rank) for batch in given)
        prepared = given if name in MIXES else trained.prepare(*given)
        optimiser.zero_grad()
        wrapped(*prepared).loss.backward()
        optimiser.step()
        trained.after_step()
    return trained.state_dict()


def part(batch: Batch, rank: int) -> Batch:
    extra = {name: tensor[rank::2] for name, tensor in batch.extra.items()}
    return Batch(tuple(view[rank::2] for view in batch.views), batch.target[rank::2], batch.indices[rank::2], extra)


def run_rank(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    torch.save({name: train_in_every_stage(name, rank) for name in METHODS}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Tensor]]]:
    folder = tmp_path_factory.mktemp("ranks")
    spawn(run_rank, (str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1)]


@each_method
def test_two_ranks_with_half_of_each_batch_equal_one_process(
    ranks: list[dict[str, dict[str, Tensor]]], name: str
) -> None:
    alone = train_in_every_stage(name)
    for rank in ranks:
        assert rank[name].keys() == alone.keys()
        for key, value in alone.items():
            torch.testing.assert_close(rank[name][key], value, rtol=1e-3, atol=1e-4, msg=key)
