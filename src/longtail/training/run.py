"""A run from settings to a finished folder."""

import os
import shlex
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from longtail._errors import LongtailError
from longtail.evaluation import Evaluation, evaluate
from longtail.training.build import build_run, precision_for
from longtail.training.build_method import find_method
from longtail.training.callback import Callback
from longtail.training.checkpoint import check_fits, load_checkpoint
from longtail.training.loggers import add_loggers, check_loggers
from longtail.training.loop import TrainingLoop
from longtail.training.memory import keep_freed_memory
from longtail.training.run_config import RunConfig
from longtail.training.run_folder.diagnostics import read_diagnostics
from longtail.training.run_folder.model import save_model
from longtail.training.run_folder.read import open_run
from longtail.training.run_folder.write import RunFolder, next_folder, write_results
from longtail.training.settings import check_settings
from longtail.training.stop_request import MemoryFullError

_PRECISIONS: dict[str, Any] = {"32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


@dataclass(frozen=True)
class Run:
    """A finished run.

    Args:
        path: its folder.
        evaluation: its numbers on the test images.
    """

    path: Path
    evaluation: Evaluation

    @property
    def metrics(self) -> dict[str, float | None]:
        """The summary numbers by name; None where a group is empty."""
        return self.evaluation.metrics

    @property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """The method's own diagnostics after some epochs, at most 21 of them, the last among them."""
        return read_diagnostics(self.path).records

    def _repr_html_(self) -> str:
        return self.evaluation._repr_html_()


def train(
    config: RunConfig,
    *,
    out: Path | None = None,
    resume: bool = False,
    callback: Callback | None = None,
) -> Run:
    """Check, train, evaluate, report.

    Args:
        config: the settings.
        out: the run's folder; `runs/NAME-N` if None.
        resume: whether to go on from the checkpoint in `out`; without one the run starts.
        callback: is told what happens.
    """
    check_loggers(config.loggers)
    fabric = launch(config)
    folder = RunFolder(Path(fabric.broadcast(str(out or next_folder(config.data)))))
    callback = add_loggers(callback or Callback(), config.loggers, folder.path)
    if config.deterministic:
        torch.use_deterministic_algorithms(True)
    state = None
    if resume and folder.has_checkpoint:
        state, remark = load_checkpoint(folder.path)
        if remark and fabric.is_global_zero:
            callback.say(remark)
    parts = build_run(config, device=fabric.device)
    settings = parts.config.as_dict()
    if state is not None:
        check_settings(state["config"], settings)
        check_fits(state, classes=list(parts.data.classes), settings=settings, where=str(folder.path))
    elif fabric.is_global_zero:
        if not resume or not folder.path.exists():
            folder.create()
        folder.write_config(settings)
        folder.write_environment(command=shlex.join(sys.argv), device=str(fabric.device))
        folder.write_split(parts.data)
    fabric.barrier()
    if fabric.is_global_zero:
        for note in parts.data.notes:
            callback.say(note)
        for problem in parts.data.problems:
            callback.say(problem.message)
        folder.log(f"{'resumed' if state else 'started'}: {shlex.join(sys.argv)}")
    loop = TrainingLoop(parts, folder, fabric, callback)
    if state is not None:
        loop.load(state)
    try:
        loop.run()
    except LongtailError as error:
        if fabric.is_global_zero or isinstance(error, MemoryFullError):  # which any rank may have alone
            folder.log(str(error))
        raise
    except Exception:
        if fabric.is_global_zero:
            folder.log(traceback.format_exc())
        raise
    test = loop.predict("test")
    val = loop.predict("val") if len(parts.data.val) else None
    if fabric.is_global_zero:
        save_model(
            folder.path / "model",
            loop.evaluated_model,
            config=parts.config,
            data=parts.data,
            preprocessing=parts.preprocessing,
        )
        records, departures = loop.progress.records, parts.method.departures
        write_results(folder.path, parts.data, test=test, val=val, records=records, departures=departures)
        folder.finish()
        folder.log("finished")
    fabric.barrier()
    return load_run(folder.path)


def launch(config: RunConfig) -> Fabric:
    """Fabric for this process: alone, started by torchrun or SLURM, or starting further processes itself."""
    keep_freed_memory()
    elastic = "TORCHELASTIC_RUN_ID" in os.environ
    devices: int | str = config.devices
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


def load_run(path: Path) -> Run:
    """Read a finished run."""
    run = open_run(path)
    predictions = run.predictions()
    return Run(path, evaluate(predictions.logits, predictions.target, run.class_counts, run.classes))
