"""Launch Fabric: this process alone, one of many that something else started, or the first of several."""

import os
from typing import Any

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from longtail.training.build import precision_for
from longtail.training.build_method import find_method
from longtail.training.memory import keep_freed_memory
from longtail.training.run_config import RunConfig

_PRECISIONS: dict[str, Any] = {"32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


def launch(config: RunConfig, *, alone: bool = False) -> Fabric:
    """Fabric for this process: alone, started by torchrun or SLURM, or starting further processes itself.

    Args:
        config: of the run.
        alone: whether this process works by itself, whatever the settings and others say.
    """
    keep_freed_memory()
    elastic = not alone and "TORCHELASTIC_RUN_ID" in os.environ
    devices: int | str = 1 if alone else config.devices
    nodes = 1
    if elastic:
        local = int(os.environ["LOCAL_WORLD_SIZE"])
        devices, nodes = local, int(os.environ["WORLD_SIZE"]) // local
        _join()
    accelerator = "auto" if torch.accelerator.is_available() else "cpu"
    if devices == "auto":
        devices = 1 if accelerator == "cpu" else torch.accelerator.device_count()
    several = elastic or int(devices) * nodes > 1
    # Each rank has the statistics of all already, so that buffers need not be sent around.
    skips = find_method(config).skips_parameters
    strategy: Any = DDPStrategy(forward_sync_buffers=False, find_unused_parameters=skips) if several else "auto"
    fabric = Fabric(
        accelerator=accelerator,
        devices=int(devices),
        num_nodes=nodes,
        strategy=strategy,
        precision=_PRECISIONS[precision_for(config)],
    )
    fabric.launch()
    return fabric


def _join() -> None:
    """Join the other ranks of torchrun, apart from those of an earlier start.

    The agent's store outlives a restart, with the addresses of ranks that are gone (seen with torch 2.15 and the c10d
    rendezvous: the new ranks wait for the old ones until they time out). So each start has its own part of the store.
    """
    store, rank, world_size = next(rendezvous("env://"))
    store = PrefixStore(f"start_{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size)
