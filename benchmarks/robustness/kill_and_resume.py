"""Kill a run with SIGKILL at random moments, resume it each time, and compare it with one that was left alone.

    python -m benchmarks.robustness.kill_and_resume --kills 50

Weights, buffers, metrics, predictions and what was seen of the mixtures must be the same to the bit. Each run is a
process of its own, forked from this one after the imports, so that many kills take minutes; the moment is drawn from
the whole duration of a run, the writing of checkpoints included.
"""

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.record import append_record
from longtail.training import build_config, train

RESULTS = Path(__file__).parent / "results.jsonl"
COMPARED = ("model/model.safetensors", "metrics.csv", "predictions.csv", "model/diagnostics.json")
SETTINGS = {
    "data": "digits-lt:10",
    "model": {"name": "resnet8"},
    "method": {"name": "compound_bn"},
    "epochs": 3,
    "batch_size": 64,
    "workers": 0,
    "checkpoint_steps": 1,
}


def fork_run(folder: Path, *, workers: int = 0) -> int:
    """Start or resume the run in `folder` in a new process; returns its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        train(build_config(SETTINGS | {"workers": workers}), out=folder, resume=True)
        code = 0
    finally:
        os._exit(code)  # none of the parent's own clean-up


def finish(child: int) -> None:
    """Wait for a run, which must end well."""
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"a run ended with status {os.waitstatus_to_exitcode(status)}")


def kill_and_resume(folder: Path, *, after: float, number: int = signal.SIGKILL, workers: int = 0) -> bool:
    """Start a run, send it `number` after some seconds, resume it; returns whether the signal met it alive."""
    child = fork_run(folder, workers=workers)
    time.sleep(after)
    met = os.waitpid(child, os.WNOHANG)[0] == 0
    if met:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)
        os.waitpid(child, 0)
    finish(fork_run(folder, workers=workers))
    return met


def differences(reference: Path, folder: Path) -> list[str]:
    """Which of the files that matter differ."""
    return [name for name in COMPARED if (reference / name).read_bytes() != (folder / name).read_bytes()]


@contextlib.contextmanager
def reference_run(base: Path) -> Iterator[tuple[Path, float]]:
    """A run that is left alone, and how many seconds it takes."""
    torch.set_num_threads(1)  # a forked process must not wait for threads that only its parent has
    start = time.monotonic()
    folder = base / "reference"
    finish(fork_run(folder))
    yield folder, time.monotonic() - start


def main() -> None:
    """Run the comparison and append the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    broken: list[str] = []
    met = 0
    with tempfile.TemporaryDirectory() as place, reference_run(Path(place)) as (reference, seconds):
        for kill in range(arguments.kills):
            folder = Path(place) / f"run-{kill}"
            after = draw.uniform(0, seconds)
            met += kill_and_resume(folder, after=after)
            found = differences(reference, folder)
            broken += [f"kill {kill} after {after:.3f} s: {', '.join(found)}"] if found else []
            print(f"kill {kill + 1} after {after:.2f} s: {found or 'identical'}", flush=True)
    identical = arguments.kills - len(broken)
    print(f"{identical} of {arguments.kills} identical; {met} were killed alive in {seconds:.1f} s of training")
    append_record(
        RESULTS,
        labels={"benchmark": "kill_and_resume"},
        command=f"python -m benchmarks.robustness.kill_and_resume --kills {arguments.kills} --seed {arguments.seed}",
        settings=SETTINGS | {"kills": arguments.kills},
        seed=arguments.seed,
        metrics={"killed_alive": met, "identical": identical, "broken": broken},
    )
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
