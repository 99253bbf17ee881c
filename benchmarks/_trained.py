"""The ladder's finished runs: which they are, their networks, and what these recognise."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor

from benchmarks import _reduced
from benchmarks._record import RESULTS, write_result
from longtail.training import build_config
from longtail.training.build import Parts, assemble, evaluation_loader
from longtail.training.run_config import RunConfig


def identity(run: Path) -> dict[str, Any]:
    """What tells a run of the ladder from others, by its JSON: row, reading, seed and settings."""
    record = json.loads((RESULTS / "ladder" / f"{run.name}.json").read_text())
    return {name: record[name] for name in ("row", "reading", "seed", "settings")}


def record_runs(benchmark: str, description: str | None, measure: Callable[[Path], dict[str, Any]]) -> None:
    """Measure the runs that the command line names, and leave a JSON each in the benchmark's folder."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    _reduced.register()
    for run in parser.parse_args().runs:
        found = measure(run)
        print(run.name, found, flush=True)
        command = f"python -m benchmarks.{benchmark} runs/ladder/{run.name}"
        write_result(f"{benchmark}/{run.name}", identity(run) | found, command=command)


def load_trained(run: Path) -> tuple[RunConfig, Parts]:
    """A run's settings and parts, the model with what it has learnt."""
    config = build_config(yaml.safe_load((run / "config.yaml").read_text()))
    parts = assemble(config)
    parts.method.model.load_state_dict(load_file(next((run / "model").glob("*.safetensors"))))
    return config, parts


@torch.no_grad()
def recalls(config: RunConfig, parts: Parts, before: Callable[[Tensor], None] = lambda _: None) -> list[float]:
    """The share of each class's test images that is recognised; `before` is told the targets of each batch first."""
    model = parts.method.model.eval()
    loader = evaluation_loader(config, parts, parts.data.test, rank=0, world_size=1)
    loader.set_epoch(0)
    right, seen = torch.zeros(len(parts.data.classes)), torch.zeros(len(parts.data.classes))
    for batch in loader:
        before(batch.target)
        right.index_add_(0, batch.target, (model(batch.views[0]).argmax(1) == batch.target).float())
        seen.index_add_(0, batch.target, torch.ones(len(batch.target)))
    return (right / seen).tolist()
