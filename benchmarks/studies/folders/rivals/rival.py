"""What every rival is given and what it hands back.

Given: a folder with `train/` and `test/`, a seed, an image size, and a budget in core-seconds for everything after
the imports but the evaluation on `test/`. The clock is the CPU time of the process, all threads together, so that
other work on the machine does not count.

Handed back, in the folder `--out`:

    predictions.csv    path,label,prediction for every test image, classes by name
    timing.json        core-seconds of training and of evaluation, what was trained, versions
"""

import argparse
import csv
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

IMAGE_ENDINGS = frozenset({".jpg", ".jpeg", ".png"})


@dataclass(frozen=True)
class Task:
    """What a rival is asked to do."""

    folder: Path
    out: Path
    seed: int
    seconds: float
    size: int
    options: argparse.Namespace

    @property
    def classes(self) -> list[str]:
        """The names of the class folders of `train/`, sorted."""
        return sorted(path.name for path in (self.folder / "train").iterdir() if path.is_dir())


def parse_task(parser: argparse.ArgumentParser) -> Task:
    """Add the arguments that all rivals have, and read the command line."""
    parser.add_argument("folder", type=Path, help="with train/ and test/")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=180, help="of core-time, for reading and training")
    parser.add_argument("--size", type=int, default=128, help="height and width that the network sees")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    return Task(options.folder, options.out, options.seed, options.seconds, options.size, options)


class CoreClock:
    """Counts the CPU seconds of this process since it was made, and how much of a budget they are."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._start = time.process_time()

    @property
    def used(self) -> float:
        """CPU seconds so far."""
        return time.process_time() - self._start

    @property
    def progress(self) -> float:
        """The share of the budget that is used, at most 1."""
        return min(self.used / self.seconds, 1.0)


def list_images(folder: Path) -> list[Path]:
    """The images of a split, by class and name."""
    return sorted(path for path in folder.glob("*/*") if path.suffix.lower() in IMAGE_ENDINGS)


def write_outcome(
    task: Task,
    paths: Sequence[Path],
    predictions: Sequence[str],
    *,
    training: float,
    clock: CoreClock,
    packages: Sequence[str],
    **details: Any,
) -> None:
    """Write `predictions.csv` and `timing.json`; `training` is what the clock had when the evaluation began."""
    with (task.out / "predictions.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("path", "label", "prediction"))
        for path, prediction in zip(paths, predictions, strict=True):
            writer.writerow((path.relative_to(task.folder).as_posix(), path.parent.name, prediction))
    timing = {
        "core_seconds_training": round(training, 1),
        "core_seconds_evaluation": round(clock.used - training, 1),
        "details": details,
        "versions": {package: version(package) for package in packages},
    }
    (task.out / "timing.json").write_text(json.dumps(timing, indent=1) + "\n", encoding="utf-8")
