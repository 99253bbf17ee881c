"""Two ranks of which one mixes its images and the other one does not."""

from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from tests.support.every_method import batches, method

# The first number that they draw is below and above one half.
SEEDS = (0, 1)


def run_rank(rank: int, folder: str) -> None:
    wait = timedelta(seconds=15)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2, timeout=wait)
    trained = method("erm", mixing="mixup", mixing_probability=0.5)
    torch.manual_seed(SEEDS[rank])
    (prepared,) = trained.prepare(*batches(trained))
    dist.barrier()  # the next sum must not be taken for theirs
    torch.save(prepared.extra | {"loss": trained(prepared).loss.detach()}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.timeout(120)
def test_a_rank_that_mixes_does_not_wait_for_one_that_does_not(tmp_path: Path) -> None:
    spawn(run_rank, (str(tmp_path),), nprocs=2)
    mixed, plain = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    assert "second_target" in mixed
    assert "second_target" not in plain
    torch.testing.assert_close(plain["weight"], torch.ones_like(plain["weight"]))

    alone = method("erm", mixing="mixup", mixing_probability=0.5)
    torch.testing.assert_close(plain["loss"], alone(*batches(alone)).loss.detach())
