"""Train the same settings with several seeds, and report mean and spread: `longtail train --seeds 5`.

The first run plans size and epochs, and the others take its plan, so that they differ in the seed alone.
"""

import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path

from longtail._errors import UsageError, counted
from longtail._files import make_folder, write_text
from longtail.evaluation.report import SeedSummary, render_seeds
from longtail.training.callback import Callback
from longtail.training.run import Run, load_run, train
from longtail.training.run_config import RunConfig, build_config
from longtail.training.run_folder.report import summarise_settings
from longtail.training.run_folder.write import RunFolder, next_folder
from longtail.training.settings import read_config
from longtail.training.stop_request import StoppedError

PAGE = "seeds.html"


@dataclass(frozen=True)
class SeedGroup:
    """Finished runs that differ in their seed.

    Args:
        path: the folder that has theirs.
        runs: in the order of the seeds.
        summary: their metrics, and the mean and spread of each.
    """

    path: Path
    runs: tuple[Run, ...]
    summary: SeedSummary

    def __repr__(self) -> str:
        found = self.summary.spreads.get("balanced")
        spread = f" ± {found.deviation:.1%}" if found and found.deviation is not None else ""
        score = f": balanced {found.mean:.1%}{spread}" if found else ""
        return f"<SeedGroup {self.path}{score} over {counted(len(self.runs), 'seed')}>"


def train_seeds(
    config: RunConfig,
    seeds: int,
    *,
    out: Path | None = None,
    resume: bool = False,
    callback: Callback | None = None,
    started: float | None = None,
) -> SeedGroup:
    """Train with `seeds` seeds, from that of the settings on, each in a folder of its own.

    Args:
        config: the settings; a time is that of each run.
        seeds: how many.
        out: the folder of them all; `runs/NAME-N` if None.
        resume: go on in `out`: finished runs stay, one that was stopped is resumed.
        callback: is told what happens.
        started: when the time of the first run began, by the monotonic clock; now if None.
    """
    if seeds < 1:
        raise UsageError(f"seeds must be at least 1, got {seeds}")
    callback, folder = callback or Callback(), out or next_folder(config.data)
    if not resume:
        RunFolder(folder).check_unused()
    make_folder(folder)
    runs: list[Run] = []
    for number in range(seeds):
        seed, started = config.seed + number, time.monotonic() if runs or started is None else started
        place = folder / f"seed-{seed}"
        if resume and RunFolder(place).is_finished:
            runs.append(load_run(place))
            continue
        callback.say(f"seed     {seed}, run {number + 1} of {seeds}")
        settings = replace(_planned(config, runs), seed=seed)
        try:
            runs.append(train(settings, out=place, resume=resume, callback=callback, started=started))
        except StoppedError as error:
            again = f"the same command with --resume auto --out {shlex.quote(str(folder))}"
            raise StoppedError(error.reason, f"seed {seed}: {error.what}", error.why, f"go on: {again}") from error
    summary = SeedSummary(
        folder.resolve().name,
        summarise_settings(read_config(runs[0].path) | {"seed": f"from {config.seed} on"}),
        {str(run.path): run.metrics for run in runs},
        runs[0].evaluation.images,
    )
    write_text(folder / PAGE, render_seeds(summary), errors="replace")
    return SeedGroup(folder, tuple(runs), summary)


def _planned(config: RunConfig, runs: list[Run]) -> RunConfig:
    """The settings with the plan of the first run; its time bounds each."""
    if not runs:
        return config
    found = build_config(read_config(runs[0].path))
    return replace(found, head=config.head)  # each run chooses the strength of its head
