"""The page of runs that differ in their seed alone: the mean and the spread of each metric."""

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from longtail.evaluation.report.render import render_page

_SHOWN = ("balanced", "top1", "many", "medium", "few", "ece")


@dataclass(frozen=True)
class Spread:
    """A metric over the seeds: mean, standard deviation (of a sample; None for one seed), lowest and highest."""

    mean: float
    deviation: float | None
    low: float
    high: float


@dataclass(frozen=True)
class SeedSummary:
    """Runs of several seeds.

    Args:
        title: of the page.
        summary: the run in words, without its seed.
        runs: metrics by folder, in the order of the seeds.
        images: to test on.
    """

    title: str
    summary: str
    runs: Mapping[str, Mapping[str, float | None]]
    images: int

    @property
    def spreads(self) -> dict[str, Spread]:
        """Of each metric that all runs have."""
        found = {}
        for name in _SHOWN:
            values = [value for run in self.runs.values() if (value := run.get(name)) is not None]
            if values and len(values) == len(self.runs):
                deviation = statistics.stdev(values) if len(values) > 1 else None
                found[name] = Spread(statistics.fmean(values), deviation, min(values), max(values))
        return found


def render_seeds(found: SeedSummary) -> str:
    """The page, as the text of an HTML file."""
    data = asdict(found) | {"spreads": {name: asdict(spread) for name, spread in found.spreads.items()}}
    names = {folder: Path(folder).name for folder in found.runs}
    return render_page(
        "seeds.html", data=json.dumps(data, ensure_ascii=False), found=found, spreads=found.spreads, names=names
    )
