"""The paper's ladder: rows x readings x seeds under one budget, on real data.

    python -m benchmarks.ladder --rows baseline cbn_sbn_dpl --seeds 0 1 2 --epochs 60 --model resnet8
    python -m benchmarks.ladder --rows cbn --readings temperature running --screen
    python -m benchmarks.evidence --print

A row is a set of switches of `compound_bn`, a reading a set of its arguments: `none` the method's defaults, `plain` the
paper's equations with the batch's statistics, `fitted` a mixture from half of the training on, and changes of these:
`default_...`, `fitted_...`, and all else of `plain` (with `..._scaled`, affine gradients count M times). Each run is a
`longtail train` of its own, single-threaded, as many at once as there are cores; it leaves one JSON, also if it
diverges, and is resumed where it was stopped. With `--screen` the numbers are those of 5,000 balanced images that are
held out of CIFAR's training set, and the test images take no part: readings are chosen so. See `_reduced` for that and
for images of half the size. `evidence` makes the tables.
"""

import argparse
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks._record import RESULTS, current_commit, write_result

ROWS: dict[str, dict[str, Any]] = {
    "baseline": {"name": "compound_bn", "compound": False, "split": False, "dual_path": False},
    "sbn": {"name": "compound_bn", "compound": False, "split": True, "dual_path": False},
    "cbn": {"name": "compound_bn", "compound": True, "split": False, "dual_path": False},
    "cbn_sbn": {"name": "compound_bn", "compound": True, "split": True, "dual_path": False},
    "cbn_sbn_dpl": {"name": "compound_bn", "compound": True, "split": True, "dual_path": True},
    "balanced_statistics": {"name": "balanced_statistics"},
}
# Decoupled training on the representations of three rows, with re-sampling, re-weighting or both in its second stage.
for _name, _base in {
    "bn": {"base": "erm", "base_settings": {"loss": "balanced_softmax"}},
    "cbn": {"base": "compound_bn", "base_settings": {"split": False, "dual_path": False}},
    "cbn_sbn_dpl": {"base": "compound_bn", "base_settings": {}},
}.items():
    for _suffix, _rs, _rw in (("rs", True, False), ("rw", False, True), ("rs_rw", True, True)):
        _second = {"norm_policy": "frozen", "resample": _rs, "reweight": _rw}
        ROWS[f"{_name}_{_suffix}"] = {"name": "decoupled", **_base, **_second}
# The paper's equations as they stand, but with the batch's statistics, as batch norm has them; readings change it.
PLAIN: dict[str, Any] = {"reading": "paper", "statistics": "batch", "momentum": 0.1}
SPREAD = {"temperature": "channels", "group_scheme": "interleaved"}
_ON_PLAIN: dict[str, dict[str, Any]] = {
    "plain": {},
    "one": {"components": 1},
    "temperature": {"temperature": "channels"},
    "temperature_4": {"temperature": 4.0},
    "running": {"statistics": "running"},
    "literal": {"statistics": "running", "momentum": 0.9},
    "detached": {"detach_responsibilities": True},
    "last_stage": {"layers": ["stage3"]},
    "temperature_4_last_stage": {"temperature": 4.0, "layers": ["stage3"]},
    "split_loss": {"split_loss_weight": 1.0},
    "temperature_split_running": {"temperature": "channels", "split_statistics": "running"},
    "temperature_4_interleaved": SPREAD | {"temperature": 4.0},
    "temperature_interleaved": SPREAD,
    "temperature_interleaved_late": SPREAD | {"start": 0.5},
    "temperature_interleaved_split_loss": SPREAD | {"split_loss_weight": 1.0},
    "temperature_interleaved_similarity_four": SPREAD | {"similarity_weight": 4.0},
    "temperature_interleaved_still": SPREAD | {"update_on_split": False},
}
# Batch norm for the first half of the training, then the dual path, with components fitted to the class groups.
FITTED: dict[str, Any] = {"component_init": "fitted", "detach_responsibilities": False}
_ON_FITTED: dict[str, dict[str, Any]] = {
    "one": {"components": 1},
    "two": {"components": 2},
    "last_stage": {"layers": ["stage3"]},
    "from_the_start": {"start": 0.0},
    "detached": {"detach_responsibilities": True},
}
_ON_DEFAULT: dict[str, dict[str, Any]] = {
    "one": {"components": 1},
    "two": {"components": 2},
    "eight": {"components": 8},
    "equal": {"component_init": "equal"},
    "equal_late": {"component_init": "equal", "start": 0.5},
    "fitted_at_once": {"component_init": "fitted", "start": 0.0},  # starts as batch norm
    "through": {"detach_responsibilities": False},  # the gradient goes through the responsibilities
    "unscaled": {"scale_affine": False},
    "moving": {"update_on_split": True},
    "last_stage": {"layers": ["stage3"]},
    "contiguous": {"group_scheme": "contiguous"},
    "running": {"statistics": "running"},
    "temperature_4": {"temperature": 4.0},
    "similarity_half": {"similarity_weight": 0.5},
    "similarity_two": {"similarity_weight": 2.0},
    "strong_statistics": {"update_on_weak": False},
}
READINGS: dict[str, dict[str, Any]] = {
    "none": {},
    "paper": {"reading": "paper"},
    "half_power": {"power": 0.5},  # of the row balanced_statistics alone
    **{name: PLAIN | change for name, change in _ON_PLAIN.items()},
    **{f"{name}_scaled": PLAIN | change | {"scale_affine": True} for name, change in _ON_PLAIN.items()},
    **{f"default_{name}": change for name, change in _ON_DEFAULT.items()},
    "fitted": FITTED,
    **{f"fitted_{name}": FITTED | change for name, change in _ON_FITTED.items()},
}
FOLDER = RESULTS / "ladder"


def job_name(arguments: argparse.Namespace, row: str, reading: str, seed: int) -> str:
    """A name that tells runs apart."""
    setting = f"{data_name(arguments)}.{arguments.model}.{arguments.epochs}".replace(":", "-")
    optim = f"b{arguments.batch_size}.lr{arguments.lr:g}.wd{arguments.weight_decay:g}"
    return f"{setting}.{optim}.{row}.{reading}.{seed}"


def data_name(arguments: argparse.Namespace) -> str:
    """The data set of the runs: at full or half size, with the test images or held-out ones in their place."""
    name, _, factor = arguments.data.partition(":")
    small = arguments.pixels == 16 and name.startswith("cifar")
    return f"{name}{'-16px' if small else ''}{'-val' if arguments.screen else ''}{factor and ':'}{factor}"


def register() -> None:
    """Let runs find the data sets and the method that exist for the ladder alone."""
    from benchmarks import _reduced
    from benchmarks._balanced_norm import BalancedStatistics
    from longtail.methods import METHODS

    _reduced.register()
    METHODS.register("balanced_statistics")(BalancedStatistics)


def run_one(arguments: argparse.Namespace, row: str, reading: str, seed: int, out: Path) -> None:
    """Train one run in this process and write its JSON."""
    import torch

    from longtail.evaluation import read_metrics
    from longtail.training import build_config, train
    from longtail.training.stop_request import DivergedError

    torch.set_num_threads(1)
    method = _method(row, reading)
    settings = {
        "data": data_name(arguments),
        "method": method,
        "model": {"name": arguments.model},
        "epochs": arguments.epochs,
        "batch_size": arguments.batch_size,
        "seed": seed,
        "workers": 0,
        "optim": {"lr": arguments.lr, "weight_decay": arguments.weight_decay},
        "eval_every": max(1, arguments.epochs // 10),
    }
    identity = {"split": "validation" if arguments.screen else "test", "row": row, "reading": reading, "seed": seed}
    identity["commit"] = current_commit()  # before the run: hours later it may be another
    start = time.monotonic()
    try:
        train(build_config(settings), out=out, resume=True)
        found = _numbers(read_metrics(out / "metrics.csv"))
    except DivergedError as error:
        found = {"diverged": error.what, "accuracy": {}, "mixture": {}}
    write_result(
        f"ladder/{job_name(arguments, row, reading, seed)}",
        identity | {"settings": settings} | found | {"minutes": (time.monotonic() - start) / 60},
        command=" ".join(["python -m benchmarks.ladder", *_setting(arguments), *_choice(row, reading, seed)]),
    )


def _method(row: str, reading: str) -> dict[str, Any]:
    """The settings of a row, with those of a reading for the compound_bn in it."""
    method, changes = ROWS[row], READINGS[reading]
    if "base" not in method:
        return method | changes
    return method | {"base_settings": method["base_settings"] | changes}


def _numbers(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What a run that came to its end is remembered by."""
    last = rows[-1]
    return {
        "train_loss": last["train/loss"],
        "accuracy": {name.partition("/")[2]: value for name, value in last.items() if name.startswith("test/")},
        "balanced_by_epoch": {
            str(row["epoch"]): row["test/balanced"] for row in rows if row.get("test/balanced") is not None
        },
        "mixture": {name: value for name, value in last.items() if name.startswith("mixture/")},
    }


def run_all(arguments: argparse.Namespace) -> int:
    """Run what has no JSON yet, as many at once as asked for; return how many failed."""
    jobs = list(itertools.product(arguments.rows, arguments.readings, arguments.seeds))
    waiting = [job for job in jobs if not (FOLDER / f"{job_name(arguments, *job)}.json").exists()]
    print(f"{len(jobs)} runs, of which {len(waiting)} are to be done, {arguments.jobs} at once", flush=True)
    running: dict[subprocess.Popen[bytes], tuple[str, str, int]] = {}
    failed = 0
    while waiting or running:
        while waiting and len(running) < arguments.jobs:
            row, reading, seed = job = waiting.pop(0)
            command = [sys.executable, "-m", "benchmarks.ladder", *_setting(arguments), *_choice(row, reading, seed)]
            command += ["--runs", str(arguments.runs), "--only-this"]
            running[subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})] = job
        time.sleep(1)
        for process in [process for process in running if process.poll() is not None]:
            job = running.pop(process)
            failed += process.returncode != 0
            print(f"{' '.join(map(str, job))}: {'done' if process.returncode == 0 else 'failed'}", flush=True)
    return failed


def _setting(arguments: argparse.Namespace) -> list[str]:
    names = ("data", "model", "epochs", "batch_size", "lr", "weight_decay", "pixels")
    given = [part for name in names for part in (f"--{name.replace('_', '-')}", str(getattr(arguments, name)))]
    return [*given, "--screen"] if arguments.screen else given


def _choice(row: str, reading: str, seed: int) -> list[str]:
    return ["--rows", row, "--readings", reading, "--seeds", str(seed)]


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--readings", nargs="+", choices=READINGS, default=["none"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--data", default="cifar10-lt:100", help="a data set or one of `_reduced`, with an imbalance factor"
    )
    parser.add_argument("--model", default="resnet8")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument(
        "--pixels", type=int, choices=(16, 32), default=16, help="side of CIFAR's images; 16 halves them"
    )
    parser.add_argument("--screen", action="store_true", help="numbers of a validation split, to choose readings by")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once")
    parser.add_argument("--runs", type=Path, default=Path("runs/ladder"), help="the folder of the runs")
    parser.add_argument("--only-this", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only_this:
        register()
        (row,), (reading,), (seed,) = arguments.rows, arguments.readings, arguments.seeds
        run_one(arguments, row, reading, seed, arguments.runs / job_name(arguments, row, reading, seed))
        return
    sys.exit(1 if run_all(arguments) else 0)


if __name__ == "__main__":
    main()
