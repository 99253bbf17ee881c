"""From class names to labels: one list of classes, that of the training split, for all splits.

Numbering the classes of each split by itself, as is often done, mislabels silently: a class that is missing
from test shifts the number of every class after it.
"""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from longtail._errors import DataError, counted
from longtail.data.inventory import FileList, Inventory, Problem
from longtail.data.splits import SplitName

# For each split, (path, class name) of every image.
NamedFiles = Mapping[SplitName, Sequence[tuple[str, str]]]


def index_classes(
    name: str,
    root: Path,
    splits: NamedFiles,
    *,
    empty: Sequence[str] = (),
    allow_empty: bool = False,
    ignore_unknown: bool = False,
    notes: Sequence[str] = (),
) -> Inventory:
    """Number the classes as the training images name them, and map the other splits to them by name.

    Args:
        name: the data as the user named it.
        root: the folder of relative paths.
        splits: for each split, the path and the class name of every image.
        empty: classes that exist but have no training image.
        allow_empty: leave out such classes instead of stopping.
        ignore_unknown: leave out images of classes that training does not have, instead of stopping.
        notes: how the layout was understood.
    """
    if empty and not allow_empty:
        raise DataError(
            f"{name} has {counted(len(empty), 'class')} without a training image: {_some(empty)}",
            "a class without images cannot be learned",
            "add images, delete the empty folders, or leave these classes out with --allow-empty",
            code="empty-class",
            paths=empty,
        )
    train = splits.get("train", ())
    classes = _in_order({label for _, label in train})
    if len(classes) < 2:
        found = f"one class only, {classes[0]!r}" if classes else "no training image"
        raise DataError(
            f"{name} has {found}",
            "a classifier needs at least two classes to tell apart",
            "add a second class; to see the layouts: longtail check --help",
            code="one-class" if classes else "no-images",
        )
    number = {label: k for k, label in enumerate(classes)}
    problems: list[Problem] = []
    if empty:
        problems.append(_left_out("empty-class", f"{counted(len(empty), 'class')} without a training image", empty))
    numbered: dict[SplitName, FileList] = {}
    for split, files in splits.items():
        unknown = sorted({label for _, label in files} - number.keys())
        if unknown and not set(unknown) <= set(empty):
            _refuse_unknown(name, split, unknown, classes, ignore_unknown)
            count = sum(label not in number for _, label in files)
            problems.append(
                _left_out("unknown-class", f"{counted(count, f'{split} image')} of untrained classes", unknown)
            )
        known = [(path, number[label]) for path, label in files if label in number]
        targets = np.array([label for _, label in known], dtype=np.int64)
        if known:
            numbered[split] = FileList(root, tuple(path for path, _ in known), targets)
    problems += missing_from_test(classes, numbered)
    return Inventory(name, classes, numbered, problems=tuple(problems), notes=tuple(notes))


def missing_from_test(classes: Sequence[str], splits: Mapping[SplitName, FileList]) -> list[Problem]:
    """A problem for each of val and test in which a class has no image."""
    problems = []
    for split in ("val", "test"):
        if split not in splits:
            continue
        present = set(splits[split].targets.tolist())
        missing = tuple(label for k, label in enumerate(classes) if k not in present)
        if missing:
            rest = f"its balanced accuracy is over {len(present)} of {len(classes)} classes"
            message = f"without a {split} image: {counted(len(missing), 'class')} ({_some(missing)}); {rest}"
            problems.append(Problem(f"class-missing-from-{split}", message, missing))
    return problems


def _refuse_unknown(name: str, split: str, unknown: Sequence[str], classes: Sequence[str], ignore: bool) -> None:
    if ignore:
        return
    near = {label: difflib.get_close_matches(label, classes, n=1) for label in unknown}
    hints = [f"{label!r} (did you mean {match[0]!r}?)" for label, match in near.items() if match]
    others = [repr(label) for label, match in near.items() if not match]
    raise DataError(
        f"{name} has {split} images of {counted(len(unknown), 'class')} that training does not have: "
        f"{_some(hints + others, quote=False)}",
        "a model cannot predict a class that it never saw",
        "rename the class, add training images, or leave these images out with --ignore-unknown",
        code="unknown-class",
        paths=unknown,
    )


def _left_out(code: str, what: str, labels: Sequence[str]) -> Problem:
    return Problem(code, f"{what} left out: {_some(labels)}", tuple(labels))


def _in_order(labels: set[str]) -> tuple[str, ...]:
    """Numbers by value, names alphabetically."""
    if all(label.isdecimal() for label in labels):
        return tuple(sorted(labels, key=lambda label: (int(label), label)))
    return tuple(sorted(labels))


def _some(labels: Sequence[str], *, quote: bool = True, most: int = 5) -> str:
    shown = ", ".join(repr(label) if quote else label for label in labels[:most])
    return shown if len(labels) <= most else f"{shown} and {len(labels) - most} more"
