"""Finished runs of the ladder: their records, their networks, and the recall of each class."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.record import append_record
from benchmarks.studies.compound_bn import reduced_datasets
from benchmarks.studies.compound_bn.ladder import RESULTS, Job, read_runs, run_name
from longtail.training import build_config
from longtail.training.build import Parts, build_run, evaluation_loader


def record_of(run: Path, results: Path = RESULTS) -> dict[str, Any]:
    """The ladder's record of a run, by the name of the run's folder."""
    for setting, rows in read_runs(results).items():
        for (row, reading), records in rows.items():
            for seed, record in records.items():
                if run_name(setting, Job(row, reading, seed)) == run.name:
                    return record
    raise SystemExit(f"{results} has no record of {run.name} (train it with the ladder first)")


def record_runs(name: str, description: str | None, measure: Callable[[Path], dict[str, Any]]) -> None:
    """Measure the runs that the command line names, and append a line for each to the study's NAME.jsonl."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    reduced_datasets.register()
    for run in parser.parse_args().runs:
        trained = record_of(run)
        metrics = measure(run)
        print(run.name, metrics, flush=True)
        append_record(
            RESULTS.with_name(f"{name}.jsonl"),
            command=f"python -m benchmarks.studies.compound_bn.{name} {run}",
            labels={key: trained[key] for key in ("split", "row", "reading")} | {"run_commit": trained["commit"]},
            seed=trained["seed"],
            settings=trained["settings"],
            metrics=metrics,
        )


def load_trained(run: Path) -> Parts:
    """The parts of a finished run, with the trained model."""
    config = build_config(yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8")))
    parts = build_run(config)
    parts.method.model.load_state_dict(load_file(next((run / "model").glob("*.safetensors"))))
    return parts


@torch.no_grad()
def recalls(parts: Parts, before: Callable[[Tensor], None] = lambda _: None) -> list[float]:
    """The recall of each class on the test split; `before` gets the targets of each batch first."""
    model = parts.method.model.eval()
    loader = evaluation_loader(parts, parts.data.test)
    loader.set_epoch(0)
    right, seen = torch.zeros(len(parts.data.classes)), torch.zeros(len(parts.data.classes))
    for batch in loader:
        before(batch.target)
        right.index_add_(0, batch.target, (model(batch.views[0]).argmax(1) == batch.target).float())
        seen.index_add_(0, batch.target, torch.ones(len(batch.target)))
    return (right / seen).tolist()
