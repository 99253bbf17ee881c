"""`longtail check DATA`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from longtail._errors import DataError, counted
from longtail._printable import show, show_lines

if TYPE_CHECKING:
    from longtail.data.check import CheckReport
    from longtail.data.inventory import Inventory

# Of more classes, only the largest and the smallest are shown.
_MOST_LINES = 24
# A bar ends before this column of a terminal.
_COLUMNS = 80


def check(
    data: Annotated[str, Parameter(name="DATA")],
    /,
    *,
    root: Path | None = None,
    seed: int = 0,
    full: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
    html: Path | None = None,
    strict: Annotated[bool, Parameter(negative="")] = False,
    path_column: str | None = None,
    label_column: str | None = None,
    allow_empty: Annotated[bool, Parameter(negative="")] = False,
    ignore_unknown: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Check a data set, without training.

    Parameters
    ----------
    data
        A folder of class folders (DATA/CLASS/image.jpg); a folder with train/, val/ and test/ of them;
        a CSV with path,label[,split]; or a name: cifar10-lt, cifar10-lt:50 (imbalance factor),
        imagenet-lt:/path.
    root
        The folder of the named data sets (default: LONGTAIL_DATA, else the user's cache folder).
    seed
        Seed of the long-tailed subset of a named data set.
    full
        Decode every image instead of only its header; finds truncated files.
    json
        Print one JSON object.
    html
        Also write the result to this HTML file.
    strict
        Exit with code 3 on any problem that can spoil a result, such as an image in both train and test.
    path_column
        Of a CSV, the column of image files (default: path, filename, image and the like).
    label_column
        Of a CSV, the column of classes (default: label, class, ClassId, category and the like).
    allow_empty
        Leave out classes without a training image, instead of stopping.
    ignore_unknown
        Leave out test images of classes that training does not have, instead of stopping.
    """
    from longtail.cli.screen import Screen

    faults: list[DataError] = []
    report = None
    with Screen(f"checking {data}") as screen:
        from longtail.data.check import check_data

        found = _take_leniently(
            faults,
            data,
            root,
            seed,
            path_column=path_column,
            label_column=label_column,
            allow_empty=allow_empty,
            ignore_unknown=ignore_unknown,
        )
        if found is not None:
            try:
                report = check_data(found, full=full, progress=screen.advance)
            except DataError as error:
                faults.append(error)
    if faults or report is None:
        if json:
            _print_json(_failed(data, faults))
        for fault in faults[:-1]:
            show(f"longtail: {fault}\n", file=sys.stderr)
        raise faults[-1]
    if html is not None:
        from longtail._files import write_text

        write_text(html, _page(report), errors="replace")
    if json:
        _print_json(report.as_json())
    else:
        show_lines(_lines(report))
    warnings = [problem for problem in report.problems if problem.severity == "warning"]
    if strict and warnings:
        raise DataError(
            f"{data} has {counted(len(warnings), 'problem')}, first: {warnings[0].message}",
            "--strict stops at any problem that can spoil a result",
            "fix the problems, or drop --strict",
            code=warnings[0].code,
        )
    return 0


def _take_leniently(faults: list[DataError], data: str, *arguments: Any, **options: Any) -> "Inventory | None":
    """The inventory, as far as it can be taken; what would stop a training is added to `faults`, all of it."""
    from longtail.data.open_dataset import take_inventory

    while True:
        try:
            return take_inventory(data, *arguments, **options)
        except DataError as error:
            faults.append(error)
            # What may be left out is left out, to see what else there is.
            option = {"empty-class": "allow_empty", "unknown-class": "ignore_unknown"}.get(error.code)
            if option is None or options[option]:
                return None
            options[option] = True


def _print_json(content: dict[str, object]) -> None:
    import json

    show(json.dumps(content, indent=2))


def _failed(data: str, faults: Sequence[DataError]) -> dict[str, object]:
    problems = [
        {"code": error.code, "message": str(error), "paths": list(error.paths), "severity": "error"} for error in faults
    ]
    return {
        "name": data,
        "classes": [],
        "class_counts": {},
        "train": 0,
        "val": 0,
        "test": 0,
        "imbalance_factor": None,
        "groups": {},
        "problems": problems,
    }


def _lines(report: "CheckReport") -> list[str]:
    data, counts = report.data, report.data.class_counts
    groups = counts.groups()
    lines = [
        data.name,
        f"  images     train {data.count('train'):,}  val {data.count('val'):,}  test {data.count('test'):,}",
        f"  classes    {len(counts):,}, of which {counts.effective_classes:.1f} effective",
        f"  imbalance  {counts.imbalance_factor:.4g} ({max(counts):,} ... {min(counts):,} images per class)",
        "  groups     " + "  ".join(f"{group} {len(members):,}" for group, members in groups.items()),
    ]
    if report.sizes:
        least, middle, most = report.sizes
        spread = f"{least} ... {most}, median {middle}," if least < most else f"{least}"
        lines.append(f"  pixels     {spread} on the shorter side")
    if len(report.modes) > 1:
        lines.append("  modes      " + "  ".join(f"{mode} {n:,}" for mode, n in report.modes.items()))
    lines += ["", *_histogram(data), ""]
    lines += [f"note: {note}" for note in data.notes]
    lines += [f"{problem.severity}: {problem.message}" for problem in report.problems]
    lines += [f"advice: {advice}" for advice in report.advice]
    return lines if lines[-1] else lines[:-1]


def _page(report: "CheckReport") -> str:
    """One self-contained page, which looks like the report of a run."""
    import json
    import shlex

    from longtail.data.splits import SPLITS
    from longtail.evaluation.report import render_check

    data = report.data
    return render_check(
        data.name,
        data.classes,
        data.class_counts,
        images={split: data.count(split) for split in SPLITS},
        sizes=report.sizes,
        problems=report.problems,
        notes=data.notes,
        advice=report.advice,
        command=shlex.join(["longtail", "train", data.name]),
        data=json.dumps(report.as_json()),
    )


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else name[: width - 1] + "…"


def _histogram(data: "Inventory") -> list[str]:
    """One bar per class, the largest first."""
    ranked = sorted(zip(data.class_counts, data.classes, strict=True), key=lambda pair: -pair[0])
    half = _MOST_LINES // 2
    shown = ranked if len(ranked) <= _MOST_LINES else [*ranked[:half], *ranked[-half:]]
    width = min(max(len(name) for _, name in shown), 30)
    longest = min(40, max(_COLUMNS - width - 14, 1))
    bars = [
        f"  {_cut(name, width):<{width}}  {count:>7,}  {'#' * round(longest * count / max(ranked[0][0], 1))}".rstrip()
        for count, name in shown
    ]
    if len(shown) < len(ranked):
        bars.insert(half, f"  ... {counted(len(ranked) - len(shown), 'more class')} ...")
    return bars
