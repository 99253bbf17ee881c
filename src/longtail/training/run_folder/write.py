"""The folder of a run: which file holds what, and how each is written.

| File | Holds |
|---|---|
| config.yaml | the resolved settings; `longtail train --config` repeats the run with them |
| env.json | versions, hardware and the command |
| split.csv | every image: split, path, class, size in bytes, SHA-256 |
| log.txt | the messages of the run, with the time |
| metrics.csv | a line an epoch |
| last.ckpt | the state to resume from |
| best.ckpt | the weights of the best epoch on validation, if there are validation images |
| model/ | weights as safetensors, config.json with all that is needed to use them |
| predictions.csv | the logits of each test image |
| model/val_predictions.csv | those of each validation image, if there are any |
| model/diagnostics.json | what else the report shows: diagnostics of the method, surest mistakes, data problems |
| report.html | the report |
| SHA256SUMS | the digests of metrics, predictions and diagnostics |

Until the run is over there are also `.lock`, which says who trains in it, `previous.ckpt`, the checkpoint before the
last, and a `microbatches.N` of each rank N that ran out of memory.
"""

import csv
import io
import json
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from longtail import __version__
from longtail._errors import DataError, UsageError
from longtail._files import make_folder, write_text
from longtail.data import LongTailData
from longtail.data.images import FileImages, ImageDataset
from longtail.evaluation import write_predictions
from longtail.training.callback import Row
from longtail.training.checkpoint import NAME, PREVIOUS
from longtail.training.microbatches import remove_notes
from longtail.training.run_folder.diagnostics import Diagnostics, worst_errors, write_diagnostics
from longtail.training.run_folder.read import PREDICTIONS
from longtail.training.run_folder.report import write_report
from longtail.training.run_folder.run_lock import NAME as LOCK
from longtail.training.run_folder.sums import write_sums

Logits = NDArray[np.float32]

PACKAGES = ("torch", "torchvision", "timm", "lightning-fabric", "numpy", "pillow", "scikit-learn", "torchmetrics")


class RunFolder:
    """One run on disk.

    Args:
        path: the folder; `create` makes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is something to resume."""
        return (self.path / NAME).exists() or (self.path / PREVIOUS).exists()

    @property
    def is_finished(self) -> bool:
        """Whether the run came to its end."""
        return (self.path / "predictions.csv").exists() and not (self.path / PREVIOUS).exists()

    def check_unused(self) -> None:
        """Refuse a folder that has something in it."""
        inside = self.path.iterdir() if self.path.is_dir() else ()
        if self.path.exists() and (not self.path.is_dir() or any(entry.name != LOCK for entry in inside)):
            raise UsageError(
                f"{self.path} already exists and is not empty",
                "a run does not write over another",
                f"choose another --out, or go on with it: longtail train --resume {shlex.quote(str(self.path))}",
            )

    def create(self) -> None:
        """Make the folder; refuse one that has something in it."""
        self.check_unused()
        try:
            make_folder(self.path)
        except OSError as error:
            raise DataError(f"cannot make the folder {self.path}: {error.strerror}", code="cannot-write") from error

    def write_config(self, settings: Mapping[str, Any]) -> None:
        """Write config.yaml."""
        text = yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True)
        write_text(self.path / "config.yaml", f"# longtail {__version__}, torch {package_version('torch')}\n{text}")

    def write_environment(self, *, command: str, device: str) -> None:
        """Write env.json."""
        write_text(self.path / "env.json", json.dumps(environment(command=command, device=device), indent=1) + "\n")

    def write_metrics(self, rows: Sequence[Row]) -> None:
        """Write metrics.csv anew."""
        columns = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows({name: "" if value is None else value for name, value in row.items()} for row in rows)
        write_text(self.path / "metrics.csv", text.getvalue())

    def log(self, message: str) -> None:
        """Add a line to log.txt."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with (self.path / "log.txt").open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write("".join(f"{now} {line}\n" for line in message.splitlines()))

    def finish(self) -> None:
        """Remove what only a run under way needs."""
        (self.path / PREVIOUS).unlink(missing_ok=True)
        remove_notes(self.path)


def write_results(
    folder: Path,
    data: LongTailData,
    *,
    test: Logits,
    val: Logits | None = None,
    records: Sequence[str] = (),
    departures: Sequence[str] = (),
) -> None:
    """Write predictions.csv, model/diagnostics.json and report.html at the end of a run; `model/` must be there.

    Args:
        folder: of the run.
        data: what it was trained on.
        test: logits of the test images, in their order.
        val: logits of the validation images, if there are any: post-hoc parameters are chosen on them.
        records: the method's diagnostics, a line of JSON each.
        departures: of the method from its paper.
    """
    _keep(folder / PREDICTIONS["test"], data.test, test, data.classes)
    if val is not None and len(val):
        _keep(folder / PREDICTIONS["val"], data.val, val, data.classes)
    errors = worst_errors(data.test, image_names(data.test), test, data.test.targets, data.classes)
    problems = [problem.message for problem in data.problems]
    write_diagnostics(folder, Diagnostics(problems, errors, [json.loads(line) for line in records], departures))
    write_sums(folder)
    write_report(folder)


def _keep(file: Path, images: ImageDataset, logits: Logits, classes: Sequence[str]) -> None:
    write_predictions(file, paths=image_names(images), target=images.targets, logits=logits, classes=classes)


def image_names(images: ImageDataset) -> list[str]:
    """A name for each image: its path, or its index."""
    if isinstance(images, FileImages):
        return [str(path) for path in images.paths]
    return [str(index) for index in range(len(images))]


def next_folder(data: str, base: Path = Path("runs")) -> Path:
    """The first `runs/NAME-N` that does not exist yet."""
    name = Path(data.partition(":")[0].rstrip("/")).stem or "run"
    number = 1
    while (base / f"{name}-{number}").exists():
        number += 1
    return base / f"{name}-{number}"


def environment(*, command: str, device: str) -> dict[str, Any]:
    """Versions, hardware and the command."""
    return {
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "longtail": __version__,
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "device": device,
        "versions": {name: package_version(name) for name in PACKAGES},
    }


def package_version(package: str) -> str | None:
    """The installed version, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
