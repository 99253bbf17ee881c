"""Evaluate a run on another data set or split, or with other thresholds for many and few."""

import csv
import difflib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail._errors import DataError, UsageError, counted
from longtail._files import from_cell
from longtail.data import FileImages, ImageDataset
from longtail.data.inventory import FileList, Inventory
from longtail.data.open_dataset import take_inventory
from longtail.data.splits import SPLITS, SplitName
from longtail.evaluation import Decision, Evaluation, Promise, evaluate, measure_promise
from longtail.training.room_in_memory import refuse_many_scores
from longtail.training.run_config import RunConfig, build_config
from longtail.training.run_folder.data_record import broken_record
from longtail.training.run_folder.read import FinishedRun, model_folder, open_run, read_description


@dataclass(frozen=True)
class Measurement:
    """The numbers of a run, and the images that they were measured on.

    They include what `longtail adjust` stored, the `decision`; where it abstains from some images, `answered` is about
    the others.
    """

    evaluation: Evaluation
    data: str
    split: str
    notes: tuple[str, ...] = ()
    decision: Decision | None = None
    answered: Promise | None = None


def measure(
    run: Path,
    data: str | None = None,
    *,
    split: SplitName | None = None,
    many: int = 100,
    few: int = 20,
    root: Path | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    ignore_unknown: bool = False,
    as_trained: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Measurement:
    """Measure the run in the folder `run`.

    Its own test images are not predicted again: the run saved their logits.

    Args:
        run: the folder.
        data: a name, a folder or a CSV; defaults to the run's own data.
        split: defaults to test, or to all images of data without splits.
        many: a class with more training images than this is many-shot.
        few: a class with fewer training images than this is few-shot.
        root: the folder of the named data sets.
        path_column: of a CSV, the column of image files; see `longtail.data.csv_table`.
        label_column: of a CSV, the column of classes.
        ignore_unknown: leave out images of classes that the run does not know, instead of stopping.
        as_trained: leave out what `longtail adjust` stored.
        progress: called with the number of images that are done, and of all.
    """
    if few > many + 1:
        raise UsageError(
            f"few must be at most many + 1, got many={many} and few={few}", "", "for example --shots 100,20"
        )
    opened = open_run(run)
    notes: tuple[str, ...] = ()
    if data is None:
        name, chosen = str(opened.settings.get("data")), split or "test"
        if chosen != "train" and opened.has_predictions(chosen):
            saved = opened.predictions(chosen)
            logits, target = saved.logits, saved.target
        else:
            images = _own_images(opened, chosen, root)
            logits, target = _logits(run, images, progress), images.targets
    else:
        found = _find(data, root, run, path_column, label_column)
        name, chosen = found.name, split or ("test" if "test" in found.splits else "train")
        images, target, notes = _known_images(found, chosen, opened.classes, ignore_unknown)
        logits = _logits(run, images, progress)
        if split is None and len(found.splits) == 1:
            chosen, notes = "train", (*notes, f"{name} has no splits: all its images are measured")
    decision, answered = None if as_trained else opened.decision, None
    if decision is not None:
        logits = decision.apply(logits)
        if decision.abstain_below:
            answered = measure_promise(logits, target, decision.priors, decision.abstain_below)
    result = evaluate(logits, target, opened.class_counts, opened.classes, many=many, few=few)
    return Measurement(result, name, chosen, notes, decision, answered)


def _logits(run: Path, images: ImageDataset, progress: Callable[[int, int], None] | None) -> NDArray[np.float32]:
    refuse_many_scores(len(images), len(read_description(model_folder(run))["classes"]))
    from longtail.inference.classifier import load  # imported here: saved logits are measured without torch

    return load(run, as_trained=True).logits(images, progress=progress)


def _own_images(run: FinishedRun, split: SplitName, root: Path | None) -> ImageDataset:
    """The images of the run's own data, after a check that they have not changed."""
    from longtail.training.build import open_data  # imported here: see `_logits`
    from longtail.training.run_folder.write import image_names

    config: RunConfig = build_config(run.settings, str(run.path / "config.yaml"))
    data = open_data(config if root is None else replace(config, root=str(root)))
    images: ImageDataset = {"train": data.train, "val": data.val, "test": data.test}[split]
    if not len(images):
        raise DataError(
            f"{run.path} has no {split} images",
            f"no images of {config.data} were held out for it",
            "choose another --split",
            code="no-images",
        )
    labels = [data.classes[k] for k in images.targets.tolist()]
    before = _recorded(run.path / "split.csv", split)
    if before is not None and before != list(zip(image_names(images), labels, strict=True)):
        raise DataError(
            f"{config.data} has changed since {run.path} was trained: its {split} images differ",
            "training images may be among those to be measured",
            f"restore the data (split.csv of the run lists it), or name other data: "
            f"{shlex.join(['longtail', 'evaluate', str(run.path)])} DATA",
            code="data-changed",
        )
    return images


def _recorded(file: Path, split: str) -> list[tuple[str, str]] | None:
    """The images of a split with their classes; None if the run has lost its split.csv."""
    if not file.is_file():
        return None
    try:
        with file.open(encoding="utf-8", errors="surrogateescape", newline="") as lines:
            rows = csv.DictReader(lines)
            return [(from_cell(row["path"]), from_cell(row["label"])) for row in rows if row["split"] == split]
    except (KeyError, AttributeError, TypeError, csv.Error) as error:
        raise broken_record(file, error) from error


def _find(data: str, root: Path | None, run: Path, path_column: str | None, label_column: str | None) -> Inventory:
    try:
        return take_inventory(
            data, root, path_column=path_column, label_column=label_column, allow_empty=True, ignore_unknown=True
        )
    except DataError as error:
        if error.code != "no-train":
            raise
        raise DataError(
            error.what,
            "a folder of splits must have train/",
            f"name the folder of one split: {shlex.join(['longtail', 'evaluate', str(run), str(Path(data) / 'test')])}",
            code=error.code,
        ) from error


def _known_images(
    found: Inventory, split: SplitName, classes: Sequence[str], ignore_unknown: bool
) -> tuple[ImageDataset, NDArray[np.int64], tuple[str, ...]]:
    """The images of `split` whose classes the run knows, and their labels in the run's numbering."""
    if split not in found.splits:
        present = ", ".join(name for name in SPLITS if name in found.splits)
        raise DataError(
            f"{found.name} has no {split} split", f"it has {present}", "choose another --split", code="no-split"
        )
    part: Any = found.splits[split]
    number = {name: k for k, name in enumerate(classes)}
    labels = np.array([number.get(name, -1) for name in found.classes], dtype=np.int64)[part.targets]
    unknown = sorted({found.classes[k] for k in part.targets[labels < 0].tolist()})
    if len(unknown) and not ignore_unknown:
        near = difflib.get_close_matches(unknown[0], classes, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise DataError(
            f"{found.name} has {counted(len(unknown), 'class')} that the run does not know, for example "
            f"{unknown[0]!r}{hint}",
            "the model has no output for them",
            "rename them, or leave their images out with --ignore-unknown",
            code="unknown-class",
            paths=unknown,
        )
    known = np.flatnonzero(labels >= 0)
    if not len(known):
        raise DataError(f"{found.name} has no {split} image of a class that the run knows", code="no-images")
    part = part.select(known)
    images = FileImages(part.paths, labels[known], root=part.root) if isinstance(part, FileList) else part
    left_out = len(labels) - len(known)
    notes = (f"left out: {counted(left_out, 'image')} of {counted(len(unknown), 'unknown class')}",) if left_out else ()
    return images, labels[known], notes
