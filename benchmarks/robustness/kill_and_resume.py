"""Kill a run with SIGKILL at random moments, resume it each time, and compare it with one that was left alone.

    python -m benchmarks.robustness.kill_and_resume --kills 50
    python -m benchmarks.robustness.kill_and_resume --methods all --kills 10

The first line has a run of `compound_bn`. The second has one of every method and preset, and each gets a record with
the stages in which its kills found it.

Weights, buffers, metrics, predictions and what was seen of the mixtures must be the same to the bit. Each run is a
process of its own, forked from this one after the imports, so that many kills take minutes. The duration of a run, the
writing of checkpoints included, is cut into as many parts as there are kills, and each kill's moment is drawn from one.
A signal that comes too late, when the run has ended, counts for nothing: an earlier moment is drawn until one meets it.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.record import append_record
from longtail.methods import METHODS
from longtail.models.create_model import check_model_name
from longtail.training import build_config, train
from longtail.training.build import open_data
from longtail.training.build_method import build_method
from longtail.training.checkpoint import load_checkpoint
from longtail.training.recipes import list_presets
from longtail.training.run_folder.read import open_run
from longtail.training.run_folder.write import RunFolder
from longtail.training.settings import layer_settings

RESULTS = Path(__file__).parent / "results.jsonl"
COMPARED = ("model/model.safetensors", "metrics.csv", "predictions.csv", "model/diagnostics.json")
SETTINGS: dict[str, Any] = {
    "data": "digits-lt:10",
    "model": {"name": "resnet8"},
    "method": {"name": "compound_bn"},
    "epochs": 3,
    "batch_size": 64,
    "workers": 0,
    "checkpoint_steps": 1,
}
ALL = sorted({*METHODS, *list_presets()})
# Networks of those that take no convolutional one, with the size of their images.
NETWORKS = {"lift": ("test_vit", 16)}


class Kill(NamedTuple):
    """What became of a run that was killed and resumed.

    Attributes:
        met: whether the signal met it alive.
        epoch: of its last checkpoint when it was killed; None before the first one.
    """

    met: bool
    epoch: int | None


def method_settings(name: str, teacher: Path | None = None, epochs: int = 4) -> dict[str, Any]:
    """The recipe of a method or preset on the smallest images, with epochs for each of its stages.

    Args:
        name: of the method or the preset.
        teacher: the folder of a finished run, for a method that needs one.
        epochs: of the run.
    """
    network, size = NETWORKS.get(name, ("resnet8", 8))
    needs = METHODS[name].needs if name in METHODS else ()
    flags = {
        "data": "digits-lt:100",
        "model": {"name": network, "pretrained": False},
        "method": {"name": name} | {need: str(teacher) for need in needs},
        "image_size": size,
        "epochs": epochs,
        "batch_size": 64,
        "workers": 0,
        "checkpoint_steps": 1,
        "eval_every": epochs,
    }
    return layer_settings(flags)


def fork_run(folder: Path, settings: Mapping[str, Any] = SETTINGS) -> int:
    """Start or resume the run in `folder` in a new process; returns its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        with Path(f"{folder}.txt").open("ab") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        train(build_config(settings), out=folder, resume=True)
        code = 0
    finally:
        os._exit(code)  # none of the parent's own clean-up


def finish(child: int) -> None:
    """Wait for a run, which must end well."""
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"a run ended with status {os.waitstatus_to_exitcode(status)}")


def kill_and_resume(folder: Path, *, after: float, settings: Mapping[str, Any] = SETTINGS) -> Kill:
    """Start a run, kill it after some seconds, and resume it."""
    child = fork_run(folder, settings)
    time.sleep(after)
    met = os.waitpid(child, os.WNOHANG)[0] == 0
    if met:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    epoch = load_checkpoint(folder)[0]["progress"]["epoch"] if RunFolder(folder).has_checkpoint else None
    finish(fork_run(folder, settings))
    return Kill(met, epoch)


def differences(reference: Path, folder: Path) -> list[str]:
    """Which of the files that matter differ."""
    return [name for name in COMPARED if (reference / name).read_bytes() != (folder / name).read_bytes()]


@contextlib.contextmanager
def reference_run(base: Path, settings: Mapping[str, Any] = SETTINGS) -> Iterator[tuple[Path, float]]:
    """A run that is left alone, and how many seconds it takes."""
    torch.set_num_threads(1)  # a forked process must not wait for threads that only its parent has
    config = build_config(settings)
    open_data(config)  # imports once, here, what each run would
    check_model_name(config.model.name or "resnet8")
    start = time.monotonic()
    finish(fork_run(folder := base / "reference", settings))
    yield folder, time.monotonic() - start


def stage_starts(reference: Path, settings: Mapping[str, Any]) -> list[int]:
    """The epochs in which the stages of the run in `reference` start, and the one after the last."""
    config, run = build_config(settings), open_run(reference)
    method = build_method(config, class_counts=list(run.class_counts), in_channels=3, image_size=config.image_size or 8)
    epochs = config.planned_epochs
    method.plan(epochs)
    return [*(round(start * epochs) for start in method.stages), epochs]


def place_of(epoch: int | None, starts: Sequence[int]) -> str:
    """Where a kill found a run whose last checkpoint is of this epoch: "stage 1", or before or after the training."""
    if epoch is None:
        return "before the first checkpoint"
    if epoch >= starts[-1]:
        return "after the training"
    return f"stage {sum(start <= epoch for start in starts[:-1])}"


def kill_often(settings: Mapping[str, Any], kills: int, draw: random.Random) -> dict[str, Any]:
    """The metrics of a record: kill a run of these settings so often."""
    broken: list[str] = []
    places: Counter[str] = Counter()
    late = 0
    with tempfile.TemporaryDirectory() as place, reference_run(Path(place), settings) as (reference, seconds):
        starts = stage_starts(reference, settings)
        for number in range(kills):
            folder = Path(place) / f"run-{number}"
            after = draw.uniform(number, number + 1) / kills * seconds
            while not (kill := kill_and_resume(folder, after=after, settings=settings)).met:
                late += 1
                after = draw.uniform(0, after)
                shutil.rmtree(folder)
            places[place_of(kill.epoch, starts)] += 1
            if found := differences(reference, folder):
                broken.append(f"kill {number} after {after:.3f} s: {', '.join(found)}")
    return {
        "killed_alive": kills,
        "too_late": late,
        "identical": kills - len(broken),
        "broken": broken,
        "found_in": dict(places),
    }


def main() -> None:
    """Run the comparison and append a record for each method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=["all", *ALL], help="with their recipes on tiny images")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    chosen = ALL if "all" in (arguments.methods or ()) else arguments.methods
    out = arguments.out.resolve()
    words = [] if chosen is None else ["--methods", *(["all"] if chosen is ALL else chosen)]
    words += ["--kills", str(arguments.kills), "--seed", str(arguments.seed)]
    broken = 0
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        teacher = Path("teacher")
        if any(METHODS[name].needs for name in chosen or () if name in METHODS):
            finish(fork_run(teacher, method_settings("erm")))
        for name in chosen or [""]:
            settings = method_settings(name, teacher) if name else SETTINGS
            metrics = kill_often(settings, arguments.kills, random.Random(arguments.seed))
            broken += len(metrics["broken"])
            print(name or settings["method"]["name"], metrics, flush=True)
            append_record(
                out,
                labels={"benchmark": "kill_and_resume"} | ({"method": name} if name else {}),
                command=f"python -m benchmarks.robustness.kill_and_resume {' '.join(words)}",
                settings={**settings, "kills": arguments.kills},
                seed=arguments.seed,
                metrics=metrics,
            )
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
