"""`longtail check DATA`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from longtail._errors import DataError, counted

if TYPE_CHECKING:
    from longtail.data.check import CheckReport
    from longtail.data.inventory import Inventory

# Of more classes, only the largest and the smallest are shown.
_MOST_LINES = 24

# The number of lines with figures below the name, and the page that shows them.
_FIGURES = 6
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{name}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem }}
body {{ overflow-wrap: anywhere }}
p {{ margin: 0; white-space: pre-wrap }}
td {{ padding: 0 1rem 0 0 }}
.n {{ text-align: right; font-variant-numeric: tabular-nums }}
meter {{ width: min(30vw, 20rem) }}
</style>
<h1>{name}</h1>
{figures}
<ul>{found}</ul>
<table><thead><tr><th>class<th>images<th><tbody>{rows}</table>
</html>
"""


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
    from longtail.data.check import check_data
    from longtail.data.open_dataset import take_inventory

    try:
        found = take_inventory(
            data,
            root,
            seed,
            path_column=path_column,
            label_column=label_column,
            allow_empty=allow_empty,
            ignore_unknown=ignore_unknown,
        )
        with Screen(f"checking {data}") as screen:
            report = check_data(found, full=full, progress=screen.advance)
    except DataError as error:
        if json:
            _print_json(_failed(data, error))
        raise
    if html is not None:
        from longtail._files import write_text

        write_text(html, _page(report), errors="replace")
    if json:
        _print_json(report.as_json())
    else:
        print("\n".join(_lines(report)))
    warnings = [problem for problem in report.problems if problem.severity == "warning"]
    if strict and warnings:
        raise DataError(
            f"{data} has {counted(len(warnings), 'problem')}, first: {warnings[0].message}",
            "--strict stops at any problem that can spoil a result",
            "fix the problems, or drop --strict",
            code=warnings[0].code,
        )
    return 0


def _print_json(content: dict[str, object]) -> None:
    import json

    print(json.dumps(content, indent=2))


def _failed(data: str, error: DataError) -> dict[str, object]:
    problem = {"code": error.code, "message": str(error), "paths": list(error.paths), "severity": "error"}
    return {
        "name": data,
        "classes": [],
        "class_counts": {},
        "train": 0,
        "val": 0,
        "test": 0,
        "imbalance_factor": None,
        "groups": {},
        "problems": [problem],
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
    """One self-contained page: the figures, the problems, and every class with its bar."""
    from html import escape

    data = report.data
    figures = "".join(f"<p>{escape(line)}</p>" for line in _lines(report)[1 : 1 + _FIGURES] if line.startswith("  "))
    found = [*(f"note: {note}" for note in data.notes)]
    found += [f"{problem.severity}: {problem.message}" for problem in report.problems]
    found += [f"advice: {advice}" for advice in report.advice]
    most = max(*data.class_counts, 1)
    ranked = sorted(zip(data.class_counts, data.classes, strict=True), key=lambda pair: -pair[0])
    rows = "".join(
        f'<tr><td>{escape(name)}<td class="n">{count:,}<td><meter max="{most}" value="{count}"></meter>'
        for count, name in ranked
    )
    return _PAGE.format(
        name=escape(data.name), figures=figures, found="".join(f"<li>{escape(line)}" for line in found), rows=rows
    )


def _histogram(data: "Inventory") -> list[str]:
    """One bar per class, the largest first."""
    ranked = sorted(zip(data.class_counts, data.classes, strict=True), key=lambda pair: -pair[0])
    half = _MOST_LINES // 2
    shown = ranked if len(ranked) <= _MOST_LINES else [*ranked[:half], *ranked[-half:]]
    width = min(max(len(name) for _, name in shown), 30)
    bars = [
        f"  {name[:width]:<{width}}  {count:>7,}  {'#' * round(40 * count / max(ranked[0][0], 1))}".rstrip()
        for count, name in shown
    ]
    if len(shown) < len(ranked):
        bars.insert(half, f"  ... {counted(len(ranked) - len(shown), 'more class')} ...")
    return bars
