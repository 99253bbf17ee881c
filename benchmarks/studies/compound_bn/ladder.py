"""The paper's ladder: rows x readings x seeds under one budget, on real data.

    python -m benchmarks.studies.compound_bn.ladder --rows baseline cbn_sbn_dpl --seeds 0 1 2 --epochs 60
    python -m benchmarks.studies.compound_bn.ladder --data cifar10-lt-fifth-16px-val:100 --rows cbn --readings running

A row is one of the paper's ablation, or decoupled training on it. A reading is `measured`, `appendix` or `text`, as the
package has them, or one of these with some of its fields changed: `default_...` changes `measured`, and `plain` is the
paper's equations with the statistics of the batch, which `..._scaled` and the rest of the names change further.

Each run is a `longtail train` of its own with one thread, as many at once as there are cores. It appends one line to
results.jsonl, also if it diverges, and a run that was stopped is resumed. In a `-val` data set held-out training images
replace the test images, so that readings are chosen on images that no published table is made of; `reduced_datasets`
has these sets. `evidence` makes the tables.
"""

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.record import append_record, current_commit, read_records

RESULTS = Path(__file__).parent / "results.jsonl"
ROWS: dict[str, dict[str, Any]] = {
    **{row: {"name": "compound_bn", "row": row} for row in ("baseline", "sbn", "cbn", "cbn_sbn", "cbn_sbn_dpl")},
    "balanced_statistics": {"name": "balanced_statistics"},
}
# Decoupled training on the representations of three rows, with re-sampling, re-weighting or both in its second stage.
for _name, _base in {
    "bn": {"base": "erm", "base_settings": {"loss": "balanced_softmax"}},
    "cbn": {"base": "compound_bn", "base_settings": {"row": "cbn"}},
    "cbn_sbn_dpl": {"base": "compound_bn", "base_settings": {"row": "cbn_sbn_dpl"}},
}.items():
    for _suffix, _rs, _rw in (("rs", True, False), ("rw", False, True), ("rs_rw", True, True)):
        _second = {"norm_policy": "frozen", "resample": _rs, "reweight": _rw}
        ROWS[f"{_name}_{_suffix}"] = {"name": "decoupled", **_base, **_second}

# The paper's equations as they stand, but with the statistics of the batch, as batch norm has them.
PLAIN: dict[str, Any] = {
    "group_scheme": "contiguous",
    "component_init": "equal",  # at random in +CBN, where no split path would separate them
    "detach_responsibilities": False,
    "update_on_split": True,
    "scale_affine": False,
}
_ON_PLAIN: dict[str, dict[str, Any]] = {
    "plain": {},
    "one": {"components": 1},
    "running": {"reading_settings": {"statistics": "running"}},
    # Algorithm 2 with λ = 0.1 taken literally, but with the variances and the least mass of `measured`; see `appendix`.
    "literal": {"reading_settings": {"statistics": "running"}, "momentum": 0.9},
    "detached": {"reading_settings": {"detach_responsibilities": True}},
    "last_stage": {"layers": ["stage3"]},
    "split_loss": {"split_loss_weight": 1.0},
}
_ON_MEASURED: dict[str, dict[str, Any]] = {
    "one": {"components": 1},
    "two": {"components": 2},
    "eight": {"components": 8},
    "equal": {"reading_settings": {"component_init": "equal"}},
    "through": {"reading_settings": {"detach_responsibilities": False}},  # the gradient goes through w
    "unscaled": {"reading_settings": {"scale_affine": False}},
    "moving": {"reading_settings": {"update_on_split": True}},
    "last_stage": {"layers": ["stage3"]},
    "contiguous": {"reading_settings": {"group_scheme": "contiguous"}},
    "running": {"reading_settings": {"statistics": "running"}},
    "similarity_half": {"similarity_weight": 0.5},
    "similarity_two": {"similarity_weight": 2.0},
}


def _on_plain(change: dict[str, Any], **norm: Any) -> dict[str, Any]:
    return change | {"reading_settings": PLAIN | change.get("reading_settings", {}) | norm}


READINGS: dict[str, dict[str, Any]] = {
    "measured": {},
    "appendix": {"reading": "appendix"},
    "text": {"reading": "text"},
    "paper": _on_plain(_ON_PLAIN["literal"]),  # `literal` of the dual path, under the name that its record has
    "half_power": {"power": 0.5},  # of the row balanced_statistics alone
    **{name: _on_plain(change) for name, change in _ON_PLAIN.items()},
    **{f"{name}_scaled": _on_plain(change, scale_affine=True) for name, change in _ON_PLAIN.items()},
    **{f"default_{name}": change for name, change in _ON_MEASURED.items()},
}


class Setting(NamedTuple):
    """What the runs of one table share."""

    data: str
    model: str
    epochs: int
    batch_size: int
    lr: float
    weight_decay: float

    def __str__(self) -> str:
        optim = f"batch {self.batch_size}, lr {self.lr:g}, weight decay {self.weight_decay:g}"
        return f"{self.data}, {self.model}, {self.epochs} epochs, {optim}"


class Job(NamedTuple):
    """What tells a run from others of its setting."""

    row: str
    reading: str
    seed: int


Runs = dict[Setting, dict[tuple[str, str], dict[int, dict[str, Any]]]]


def read_runs(file: Path = RESULTS) -> Runs:
    """The records of a file by setting, by row and reading, by seed; the last one if a run was repeated."""
    runs: Runs = defaultdict(lambda: defaultdict(dict))
    for record in read_records(file):
        s = record["settings"]
        optim = s["optim"]["lr"], s["optim"]["weight_decay"]
        setting = Setting(s["data"], s["model"]["name"], s["epochs"], s["batch_size"], *optim)
        runs[setting][record["row"], record["reading"]][record["seed"]] = record
    return runs


def run_name(setting: Setting, job: Job) -> str:
    """The name of a run's folder."""
    shared = f"{setting.data}.{setting.model}.{setting.epochs}".replace(":", "-")
    optim = f"b{setting.batch_size}.lr{setting.lr:g}.wd{setting.weight_decay:g}"
    return f"{shared}.{optim}.{job.row}.{job.reading}.{job.seed}"


def method_settings(row: str, reading: str) -> dict[str, Any]:
    """The method of a row, with the changes of a reading where its compound_bn is."""
    method, changes = ROWS[row], READINGS[reading]
    if "base" in method:
        return method | {"base_settings": method["base_settings"] | changes}
    if row == "cbn" and changes.get("reading_settings", {}).get("component_init") == "equal":
        changes = changes | {"reading_settings": changes["reading_settings"] | {"component_init": "random"}}
    return method | changes


def arguments(setting: Setting, job: Job) -> list[str]:
    """The command line of one run, after `python`."""
    given = [part for name, value in setting._asdict().items() for part in (f"--{name.replace('_', '-')}", str(value))]
    choice = ["--rows", job.row, "--readings", job.reading, "--seeds", str(job.seed)]
    return ["-m", "benchmarks.studies.compound_bn.ladder", *given, *choice]


def register() -> None:
    """Let runs find the data sets and the method that exist for this study alone."""
    from benchmarks.studies.compound_bn import reduced_datasets
    from benchmarks.studies.compound_bn.balanced_statistics import BalancedStatistics
    from longtail.methods import METHODS

    reduced_datasets.register()
    METHODS.register("balanced_statistics")(BalancedStatistics)


def run_one(setting: Setting, job: Job, out: Path, results: Path = RESULTS) -> None:
    """Train one run in this process and append its record."""
    import torch
    import yaml

    from longtail.evaluation import read_metrics
    from longtail.training import build_config, train
    from longtail.training.stop_request import DivergedError

    torch.set_num_threads(1)
    config = build_config(
        {
            "data": setting.data,
            "method": method_settings(job.row, job.reading),
            "model": {"name": setting.model},
            "epochs": setting.epochs,
            "batch_size": setting.batch_size,
            "seed": job.seed,
            "workers": 0,
            "optim": {"lr": setting.lr, "weight_decay": setting.weight_decay},
            "eval_every": max(1, setting.epochs // 10),
        }
    )
    commit = current_commit()  # before the run: hours later it may be another
    start = time.monotonic()
    try:
        train(config, out=out, resume=True)
        metrics = last_epoch(read_metrics(out / "metrics.csv"))
    except DivergedError as error:
        metrics = {"diverged": error.what, "accuracy": {}, "mixture": {}}
    append_record(
        results,
        command=" ".join(["python", *arguments(setting, job)]),
        commit=commit,
        labels={
            "split": "validation" if "-val" in setting.data else "test",
            "row": job.row,
            "reading": job.reading,
        },
        seed=job.seed,
        settings=yaml.safe_load((out / "config.yaml").read_text(encoding="utf-8")),
        metrics=metrics | {"minutes": (time.monotonic() - start) / 60},
    )


def last_epoch(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The metrics of a run that came to its end."""
    last = rows[-1]
    return {
        "train_loss": last["train/loss"],
        "accuracy": {name.partition("/")[2]: value for name, value in last.items() if name.startswith("test/")},
        "balanced_by_epoch": {
            str(row["epoch"]): row["test/balanced"] for row in rows if row.get("test/balanced") is not None
        },
        "mixture": {name: value for name, value in last.items() if name.startswith("mixture/")},
    }


def run_all(setting: Setting, jobs: list[Job], *, at_once: int, folder: Path) -> int:
    """Run the jobs that have no record yet; return how many failed."""
    done = read_runs().get(setting, {})
    waiting = [job for job in jobs if job.seed not in done.get((job.row, job.reading), {})]
    print(f"{len(jobs)} runs, {len(waiting)} to do, {at_once} at once", flush=True)
    running: dict[subprocess.Popen[bytes], Job] = {}
    failed = 0
    while waiting or running:
        while waiting and len(running) < at_once:
            job = waiting.pop(0)
            command = [sys.executable, *arguments(setting, job), "--runs", str(folder), "--only-this"]
            running[subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})] = job
        time.sleep(1)
        for process in [process for process in running if process.poll() is not None]:
            job = running.pop(process)
            failed += process.returncode != 0
            print(f"{' '.join(map(str, job))}: {'done' if process.returncode == 0 else 'failed'}", flush=True)
    return failed


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--readings", nargs="+", choices=READINGS, default=["measured"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--data",
        default="cifar10-lt-16px:100",
        help="a data set of the package or of `reduced_datasets`, with an imbalance factor",
    )
    parser.add_argument("--model", default="resnet8")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once")
    parser.add_argument("--runs", type=Path, default=Path("runs/ladder"), help="the folder of the runs")
    parser.add_argument("--only-this", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    setting = Setting(*(getattr(given, name) for name in Setting._fields))
    jobs = list(itertools.starmap(Job, itertools.product(given.rows, given.readings, given.seeds)))
    if given.only_this:
        register()
        (job,) = jobs
        run_one(setting, job, given.runs / run_name(setting, job))
        return
    sys.exit(1 if run_all(setting, jobs, at_once=given.jobs, folder=given.runs) else 0)


if __name__ == "__main__":
    main()
