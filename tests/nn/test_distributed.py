"""Two gloo ranks with half of the batch each against one process with all of it."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from longtail.nn import CompoundBatchNorm2d, split_path
from tests.support.plain_reading import plain

GROUPS = torch.tensor([0, 1, 2, 0, 1, 1, 2, 1])


def batch(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(8, 3, 6, 6, generator=generator, dtype=torch.float64) + 5
    return x.to(dtype), torch.randn(8, 4, 4, 4, generator=generator, dtype=torch.float64).to(dtype)


def model(dtype: torch.dtype = torch.float64, statistics: str = "batch", **options: Any) -> nn.Sequential:
    torch.manual_seed(0)
    norm = CompoundBatchNorm2d(4, 3, reading=plain(component_init="random", statistics=statistics), **options)
    return nn.Sequential(nn.Conv2d(3, 4, 3), norm).to(dtype)


def step(net: nn.Module, inner: nn.Module, x: Tensor, target: Tensor, groups: Tensor) -> dict[str, Tensor]:
    """Both paths, one backward; returns outputs, gradients and buffers."""
    x = x.clone().requires_grad_()
    compound = net(x)
    with split_path(inner, groups):
        split = net(x)
    ((compound - target).square().mean() + (split + target).square().mean()).backward()
    assert x.grad is not None
    results = {"compound": compound.detach(), "split": split.detach(), "input_gradient": x.grad}
    results |= {f"gradient of {name}": p.grad for name, p in inner.named_parameters() if p.grad is not None}
    return results | dict(inner.named_buffers())


# float64 takes the eager path, float32 the kernel.
CASES: dict[str, tuple[dict[str, Any], bool]] = {
    "batch": ({"statistics": "batch"}, False),
    "batch, buffers broadcast": ({"statistics": "batch"}, True),
    "running": ({"statistics": "running"}, False),
    "updated": ({"statistics": "updated"}, False),
    "batch, float32": ({"statistics": "batch", "dtype": torch.float32}, False),
    "running, float32": ({"statistics": "running", "dtype": torch.float32}, False),
    "updated, float32": ({"statistics": "updated", "dtype": torch.float32}, False),
    "not synchronised": ({"synchronize": False}, False),
}


def run_rank(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    results = {}
    for case, (options, broadcast_buffers) in CASES.items():
        inner = model(**options)
        dtype = next(inner.parameters()).dtype
        net = DistributedDataParallel(inner, broadcast_buffers=broadcast_buffers)
        x, target = (tensor.chunk(2)[rank] for tensor in batch(dtype))
        results[case] = step(net, inner, x, target, GROUPS.chunk(2)[rank])
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Tensor]]]:
    folder = tmp_path_factory.mktemp("ranks")
    spawn(run_rank, (str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.mark.parametrize("case", [case for case in CASES if case != "not synchronised"])
def test_two_ranks_with_half_the_batch_each_equal_one_process(
    ranks: list[dict[str, dict[str, Tensor]]], case: str
) -> None:
    halves = [rank[case] for rank in ranks]
    net = model(**CASES[case][0])
    dtype = next(net.parameters()).dtype
    close: dict[str, Any] = {} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-5}
    alone = step(net, net, *batch(dtype), GROUPS)
    for name in ("compound", "split"):
        torch.testing.assert_close(torch.cat([half[name] for half in halves]), alone[name], **close)
    # Each rank's loss is a mean over half of the batch, so its input gradient counts double; DDP averages the rest.
    gradient = torch.cat([half["input_gradient"] for half in halves]) / 2
    torch.testing.assert_close(gradient, alone["input_gradient"], **close)
    for name in alone.keys() - {"compound", "split", "input_gradient"}:
        for half in halves:
            torch.testing.assert_close(half[name], alone[name], **close)


def test_synchronisation_can_be_turned_off(ranks: list[dict[str, dict[str, Tensor]]]) -> None:
    halves = [rank["not synchronised"] for rank in ranks]
    for part, half in enumerate(halves):
        net = model()
        x, target = (tensor.chunk(2)[part] for tensor in batch(torch.float64))
        alone = step(net, net, x, target, GROUPS.chunk(2)[part])
        torch.testing.assert_close(half["compound"], alone["compound"])
        torch.testing.assert_close(half["1.running_mean"], alone["1.running_mean"])
    assert not torch.equal(halves[0]["1.running_mean"], halves[1]["1.running_mean"])
