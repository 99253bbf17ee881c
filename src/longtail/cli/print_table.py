"""Print accuracies as a few lines, and rows as a table."""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from longtail._printable import printable

if TYPE_CHECKING:
    from longtail.evaluation import Estimate, Evaluation
    from longtail.evaluation.report import SeedSummary


def accuracy_lines(found: "Evaluation") -> list[str]:
    """Top-1 accuracy, balanced accuracy and the accuracy of each group, with intervals."""
    rows: dict[str, Estimate | None] = {"all": found.top1, "balanced": found.balanced}
    rows |= {group: result.accuracy for group, result in found.groups.items()}
    lines = [f"{'':10}{'accuracy':>9}  95 % interval"]
    for name, estimate in rows.items():
        if estimate is None:
            lines.append(f"{name:10}{'-':>9}  no test images")
        elif estimate.low is None or estimate.high is None:
            lines.append(f"{name:10}{estimate.value:9.1%}  none for one image")
        else:
            lines.append(f"{name:10}{estimate.value:9.1%}  {estimate.low:.1%} to {estimate.high:.1%}")
    return lines


def spread_lines(found: "SeedSummary") -> list[str]:
    """Mean and standard deviation of each metric over the seeds."""
    lines = [f"{'':10}{'mean':>9}  {'± s.d.':>7}  {len(found.runs)} seeds, lowest to highest"]
    for name, spread in found.spreads.items():
        deviation = "-" if spread.deviation is None else f"{100 * spread.deviation:.1f}"
        lines.append(f"{name:10}{spread.mean:9.1%}  {deviation:>7}  {spread.low:.1%} to {spread.high:.1%}")
    return lines


# Columns of these names hold numbers.
_NUMBERS = frozenset({"paper", "ours", "difference", "runs", "seeds", "time"})


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, stderr: bool = False) -> None:
    """Print rows under a header, numbers aligned right; as wide as the terminal, or without a limit elsewhere."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stderr if stderr else sys.stdout)
    if not console.is_terminal:
        console = Console(file=console.file, width=1000)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in header:
        numbers = name in _NUMBERS
        table.add_column(name, justify="right" if numbers else "left", no_wrap=numbers)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))  # Text: brackets are not markup
    console.print(table)
