from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from longtail._errors import UsageError
from longtail.class_counts import ClassCounts
from longtail.data.views import Batch
from longtail.evaluation import read_metrics
from longtail.training import train
from longtail.training.ascend_on_tail import ascend_on_tail, select_images, tail_classes
from longtail.training.ranks import Ranks
from tests.support.tiny_runs import config

ALONE = cast("Ranks", SimpleNamespace(size=1, sum=lambda tensor: tensor))
TAIL = torch.tensor([False, True, True])


def gradient(target: Tensor, tail: Tensor, radius: float) -> tuple[list[Tensor], list[Tensor]]:
    """What `ascend_on_tail` makes of the gradient of a batch, and what the equation says, without batch norm."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 3))
    images = torch.randn(len(target), 3, 2, 2)
    weights = list(model.parameters())
    chosen, share = tail[target], tail[target].float().mean()

    def loss(rows: Tensor) -> Tensor:
        return F.cross_entropy(model(images[rows]), target[rows])

    of_tail = torch.autograd.grad(loss(chosen), weights) if chosen.any() else []
    expected = list(torch.autograd.grad(loss(torch.ones_like(chosen)), weights))
    if chosen.sum() >= 2:
        if not chosen.all():
            expected = [(1 - share) * g for g in torch.autograd.grad(loss(~chosen), weights)]
        else:
            expected = [torch.zeros_like(w) for w in weights]
        norm = torch.cat([g.flatten() for g in of_tail]).norm()
        with torch.no_grad():
            for w, g in zip(weights, of_tail, strict=True):
                w.add_(radius * g / norm)
        there = torch.autograd.grad(loss(chosen), weights)
        expected = [e + share * g for e, g in zip(expected, there, strict=True)]
        with torch.no_grad():
            for w, g in zip(weights, of_tail, strict=True):
                w.sub_(radius * g / norm)

    def backward(batch: Batch, factor: float) -> None:
        (factor * F.cross_entropy(model(batch.views[0]), batch.target)).backward()

    batch = Batch((images,), target, torch.arange(len(target)))
    backward(batch, 1.0)
    optimizer = torch.optim.SGD(weights, lr=0.1)
    ascend_on_tail(optimizer, model, batch, tail=tail, radius=radius, backward=backward, ranks=ALONE)
    return [w.grad for w in weights if w.grad is not None], expected


@pytest.mark.parametrize(
    "target", [[0, 0, 0, 1, 1, 2], [1, 2, 1, 2], [0, 0, 0, 0], [0, 0, 0, 2]], ids=["both", "tail", "head", "one"]
)
def test_the_gradient_is_the_head_s_here_and_the_tail_s_at_the_end_of_its_ascent(target: list[int]) -> None:
    found, expected = gradient(torch.tensor(target), TAIL, 0.3)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


class TwoRanks:
    """What `ascend_on_tail` asks of the ranks of a run."""

    size = 2

    def sum(self, tensor: Tensor) -> Tensor:
        total = tensor.clone()
        dist.all_reduce(total)
        return total


def ascend(target: Tensor, rank: int | None = None) -> list[Tensor]:
    """The gradient of all images, or of every second one on each of two ranks."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 3))
    batch = Batch((torch.randn(len(target), 3, 2, 2),), target, torch.arange(len(target)))
    if rank is not None:
        batch = select_images(batch, torch.arange(len(target)) % 2 == rank)
    wrapped: nn.Module = model if rank is None else DistributedDataParallel(model)

    def backward(batch: Batch, factor: float) -> None:
        with wrapped.no_sync() if isinstance(wrapped, DistributedDataParallel) else nullcontext():
            (factor * F.cross_entropy(wrapped(batch.views[0]), batch.target)).backward()

    F.cross_entropy(wrapped(batch.views[0]), batch.target).backward()
    ranks = ALONE if rank is None else cast("Ranks", TwoRanks())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ascend_on_tail(optimizer, model, batch, tail=TAIL, radius=0.3, backward=backward, ranks=ranks)
    return [w.grad for w in model.parameters() if w.grad is not None]


# The first rank has no image of the tail: it must not keep the other one waiting.
UNEVEN = torch.tensor([0, 1, 0, 2, 0, 2, 0, 1])


def run_rank(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    torch.save(ascend(UNEVEN, rank), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_two_ranks_have_the_gradient_of_one_process_even_if_one_has_no_tail(tmp_path: Path) -> None:
    spawn(run_rank, (str(tmp_path),), nprocs=2)
    alone = ascend(UNEVEN)
    for rank in (0, 1):
        for found, expected in zip(torch.load(tmp_path / f"{rank}.pt", weights_only=True), alone, strict=True):
            torch.testing.assert_close(found, expected)


def test_the_tail_has_a_hundred_images_a_class_or_fewer_or_else_is_the_rarer_half() -> None:
    assert tail_classes(ClassCounts([101, 100, 19])).tolist() == [False, True, True]
    assert tail_classes(ClassCounts([900, 200, 300, 400])).tolist() == [False, True, True, False]
    assert tail_classes(ClassCounts([9, 20, 30])).tolist() == [True, False, False]


def test_without_a_radius_it_means_nothing_and_is_refused() -> None:
    with pytest.raises(UsageError, match=r"optim\.sam_classes must be all without optim\.sam, got tail"):
        config(optim={"sam_classes": "tail"})


def test_a_method_whose_images_cannot_be_taken_by_themselves_is_refused(tmp_path: Path) -> None:
    optim = {"sam": 0.05, "sam_classes": "tail"}
    for name in ("lade", "bbn"):
        with pytest.raises(UsageError, match=rf"optim\.sam_classes must be all for {name}, got tail"):
            train(config(optim=optim, method={"name": name}), out=tmp_path / name)


def test_a_run_learns_by_it_and_other_things_than_by_sam(tmp_path: Path) -> None:
    losses = []
    for classes in ("all", "tail"):
        out = tmp_path / classes
        train(config(optim={"sam": 0.5, "sam_classes": classes}, epochs=1), out=out)
        losses.append(read_metrics(out / "metrics.csv")[-1]["test/accuracy"])
    assert losses[0] != losses[1]
