"""Check a data set before training: sizes, imbalance, unreadable and repeated images, advice."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from longtail._errors import DataError, counted
from longtail.class_counts import GROUPS
from longtail.data.images import ArrayImages
from longtail.data.inventory import FileList, Inventory, Problem
from longtail.data.mirrored_classes import mirrored_classes
from longtail.data.scan import FileScan, Progress, same_files, scan_files
from longtail.data.splits import SPLITS, SplitName

# The problem of classes that are mirror images of each other.
MIRRORED = "mirrored-classes"

# An image of a data set: its split and its place there.
Place = tuple[SplitName, int]


@dataclass(frozen=True)
class CheckReport:
    """What a check found.

    Args:
        data: the data without the unreadable images; its `problems` are all that were found.
        unreadable: the files that cannot be read.
        modes: the number of images of each Pillow mode; empty for images in memory.
        sizes: the smallest, the median and the largest shorter side; empty without images.
        advice: what to try.
    """

    data: Inventory
    unreadable: tuple[str, ...]
    modes: dict[str, int]
    sizes: tuple[int, ...]
    advice: tuple[str, ...]

    def __repr__(self) -> str:
        images = counted(self.data.count("train"), "training image")
        found = counted(len(self.problems), "problem")
        return f"<CheckReport {self.data.name}: {images} of {counted(len(self.data.classes), 'class')}, {found}>"

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the data."""
        return self.data.problems

    def as_json(self) -> dict[str, Any]:
        """The report as one JSON object."""
        counts = self.data.class_counts
        members = counts.groups()
        return {
            "name": self.data.name,
            "classes": list(self.data.classes),
            "class_counts": dict(zip(self.data.classes, counts, strict=True)),
            **{split: self.data.count(split) for split in SPLITS},
            "imbalance_factor": counts.imbalance_factor,
            "effective_classes": counts.effective_classes,
            "groups": {group: len(members.get(group, ())) for group in GROUPS},
            "unreadable": len(self.unreadable),
            "modes": self.modes,
            "sizes": list(self.sizes),
            "problems": [asdict(problem) for problem in self.problems],
            "notes": list(self.data.notes),
            "advice": list(self.advice),
        }


def check_data(data: Inventory, *, full: bool = False, progress: Progress | None = None) -> CheckReport:
    """Check every image of a data set.

    Args:
        data: what was found.
        full: decode every image instead of reading its header alone.
        progress: called with the number of images done and the number of all.

    Raises:
        DataError: no training image of some class can be read.
    """
    places = [(split, i) for split, part in data.splits.items() for i in range(len(part))]
    train = data.splits["train"]
    if isinstance(train, ArrayImages):
        side = min(train.images.shape[1:3])
        problems = [*data.problems, *_repeats(data, places, _same_rows(data)), *_single(data)]
        return CheckReport(replace(data, problems=tuple(problems)), (), {}, (side,) * 3, _advice(data))

    files = [str(train.root / data_path(data, place)) for place in places]
    scans = scan_files(files, full=full, progress=progress)
    broken = tuple(data_path(data, place) for place, scan in zip(places, scans, strict=True) if scan.error)
    readable = _with_sizes(data, scans).without(broken)
    _refuse_lost_classes(readable, data, broken)
    if not data.benchmark:  # theirs are mirrored in all papers
        pairs = mirrored_classes(readable.splits["train"], data.classes, progress=progress)
        readable = replace(readable, mirrored=tuple(pairs))
    good = [scan for scan in scans if not scan.error]
    groups = same_files(files, [scan.length for scan in scans], progress)
    problems = [
        *data.problems,
        *_unreadable(broken, len(files)),
        *_repeats(data, places, groups),
        *_converted(data, places, scans),
        *_single(readable),
        *_mirrored(readable),
    ]
    sides = sorted(min(scan.width, scan.height) for scan in good)
    return CheckReport(
        replace(readable, problems=tuple(problems)),
        broken,
        dict(Counter(scan.mode for scan in good).most_common()),
        (sides[0], round(median(sides)), sides[-1]) if sides else (),
        _advice(readable),
    )


def data_path(data: Inventory, place: Place) -> str:
    """The name of an image as the user gave it: its path, or its place in memory."""
    split, i = place
    part = data.splits[split]
    return part.paths[i] if isinstance(part, FileList) else f"{split}[{i}]"


def _same_rows(data: Inventory) -> list[list[int]]:
    """Groups of images in memory with the same pixels."""
    groups: dict[bytes, list[int]] = defaultdict(list)
    parts = [part for part in data.splits.values() if isinstance(part, ArrayImages)]
    for i, image in enumerate(image for part in parts for image in part.images):
        groups[hashlib.blake2b(image.tobytes(), digest_size=16).digest()].append(i)
    return [group for group in groups.values() if len(group) > 1]


def _repeats(data: Inventory, places: Sequence[Place], groups: Sequence[Sequence[int]]) -> list[Problem]:
    """Repeated images: across splits (which flatters the result), under two labels (one is wrong), or twice."""
    across, contrary, twice = [], [], []
    for group in groups:
        members = [places[i] for i in group]
        labels = {int(data.splits[split].targets[i]) for split, i in members}
        names = [data_path(data, place) for place in members]
        if len({split for split, _ in members}) > 1:
            across.append(names)
        elif len(labels) > 1:
            contrary.append(names)
        else:
            twice.append(names)
    problems = []
    for code, what, found in (
        ("duplicates-across-splits", "in more than one split", across),
        ("two-labels", "under two labels", contrary),
        ("duplicates", "there more than once", twice),
    ):
        if found:
            message = f"{what}: {counted(len(found), 'image')}, for example {' = '.join(found[0][:3])}"
            paths = tuple(name for names in found for name in names)
            problems.append(Problem(code, message, paths, "note" if code == "duplicates" else "warning"))
    return problems


def _with_sizes(data: Inventory, scans: Sequence[FileScan]) -> Inventory:
    """The same data with the height and width of each file, 0 for those that cannot be read."""
    sizes = np.array([(scan.height, scan.width) for scan in scans], dtype=np.int64).reshape(-1, 2)
    splits, start = dict(data.splits), 0
    for name, part in data.splits.items():
        if isinstance(part, FileList):
            splits[name] = replace(part, sizes=sizes[start : start + len(part)])
        start += len(part)
    return replace(data, splits=splits)


def _unreadable(broken: Sequence[str], total: int) -> list[Problem]:
    if not broken:
        return []
    message = f"unreadable and left out: {len(broken):,} of {counted(total, 'image')}, for example {broken[0]}"
    return [Problem("unreadable", message, tuple(broken))]


def _refuse_lost_classes(readable: Inventory, data: Inventory, broken: Sequence[str]) -> None:
    before, after = data.class_counts, readable.class_counts
    lost = [name for k, name in enumerate(data.classes) if before[k] and not after[k]]
    if lost:
        raise DataError(
            f"no training image of {counted(len(lost), 'class')} can be read: {', '.join(lost[:5])}",
            "a class without images cannot be learned",
            "replace the broken files or remove the classes",
            code="unreadable",
            paths=broken,
        )


def _converted(data: Inventory, places: Sequence[Place], scans: Sequence[FileScan]) -> list[Problem]:
    """Images that are converted on reading: not 8-bit RGB, or stored rotated."""
    other = [(place, scan) for place, scan in zip(places, scans, strict=True) if not scan.error and scan.mode != "RGB"]
    rotated = [place for place, scan in zip(places, scans, strict=True) if scan.rotated]
    problems = []
    if other:
        kinds = ", ".join(f"{n} {mode}" for mode, n in Counter(scan.mode for _, scan in other).most_common())
        paths = tuple(data_path(data, place) for place, _ in other)
        problems.append(
            Problem("odd-modes", f"converted to RGB: {counted(len(other), 'image')} ({kinds})", paths, "note")
        )
    if rotated:
        paths = tuple(data_path(data, place) for place in rotated)
        problems.append(Problem("rotated", f"turned upright (EXIF): {counted(len(rotated), 'image')}", paths, "note"))
    return problems


def _single(data: Inventory) -> list[Problem]:
    single = tuple(name for name, count in zip(data.classes, data.class_counts, strict=True) if count == 1)
    if not single:
        return []
    message = f"with one training image: {counted(len(single), 'class')}; measured only if test has more of them"
    return [Problem("one-image", message, single, "note")]


def _mirrored(data: Inventory) -> list[Problem]:
    if not data.mirrored:
        return []
    message = f"{mirrored_in_words(data.mirrored)}: train with --no-flip"
    return [Problem(MIRRORED, message, tuple(name for pair in data.mirrored for name in pair))]


def mirrored_in_words(pairs: Sequence[tuple[str, str]]) -> str:
    """What is wrong with mirroring.

    Example:
        >>> mirrored_in_words([("turn left", "turn right"), ("b", "d")])
        "mirrored, 'turn left' looks like 'turn right' (and 1 more pair of classes)"
    """
    first, second = pairs[0]
    more = f" (and {counted(len(pairs) - 1, 'more pair')} of classes)" if len(pairs) > 1 else ""
    return f"mirrored, {first!r} looks like {second!r}{more}"


def _advice(data: Inventory) -> tuple[str, ...]:
    counts = data.class_counts
    groups = counts.groups()
    advice = []
    if "test" not in data.splits:
        instead = "measures on val" if "val" in data.splits else "holds out a fifth of the images"
        advice.append(f"there is no test split: training {instead}")
    if counts.imbalance_factor >= 10:
        advice.append("the classes are imbalanced: look at the balanced accuracy, not at the plain one")
    if "few" in groups:
        advice.append(f"collect more of {counted(len(groups['few']), 'class')} with fewer than 20 images first")
    if counts.total < 1000:
        advice.append("fewer than 1,000 training images: start from a pretrained model")
    return tuple(advice)
