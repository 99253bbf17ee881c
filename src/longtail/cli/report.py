"""`longtail report RUN [RUN ...]`."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from longtail._printable import show, show_lines


def report(
    runs: Annotated[tuple[Path, ...], Parameter(name="RUN")] = (),
    /,
    *,
    open_: Annotated[bool, Parameter(name="--open", negative="")] = False,
    out: Path | None = None,
    as_trained: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Rebuild the report of a run, or compare several runs.

    A comparison needs runs on the same test images. It says what differs from the first run, with intervals from a
    paired bootstrap, or that no difference is shown.

    Parameters
    ----------
    runs
        The folder of a run, or those of several runs to compare.
    open_
        Open the page in the browser.
    out
        The file of the page (default: report.html in RUN, or comparison.html beside the first RUN).
    as_trained
        Leave out what `longtail adjust` stored.
    """
    from longtail._errors import UsageError

    if not runs:
        raise UsageError("RUN is missing", "", "name the folder of a run, for example runs/birds-1")
    from longtail.cli.screen import Status

    verdicts = []
    with Status(f"reading {runs[0]}" if len(runs) == 1 else f"comparing {len(runs)} runs"):
        from longtail.training.run_folder.report import write_comparison, write_report
        from longtail.training.run_folder.run_lock import lock_holder

        if len(runs) == 1:
            file = write_report(runs[0], out, as_trained=as_trained)
        else:
            file = out or runs[0].parent / "comparison.html"
            comparison = write_comparison(runs, file, as_trained=as_trained)
            names = list(comparison.evaluations)
            verdicts = [comparison.verdict(name) for name in names[1:]]
    show_lines(verdicts)
    for run in runs:
        if holder := lock_holder(run):
            show(f"{run} is live: {holder} is training in it; the page has the results before that", file=sys.stderr)
    show(f"{'report' if len(runs) == 1 else 'comparison'}: {file}")
    if open_:
        import webbrowser

        webbrowser.open(file.resolve().as_uri())
    return 0
