"""Carry a plan out: run after run, each an ordinary run that goes on where it stopped.

A finished run is not repeated. A run that fails leaves `failed.json` in its folder and the others go on; the next time
it is tried again, from its last checkpoint. A request to stop ends all of it, to be gone on with by the same command.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from longtail._errors import LongtailError
from longtail._files import write_text
from longtail.reproduction.plan import Plan, PlannedRun
from longtail.training import Callback, train
from longtail.training.run_folder.write import RunFolder
from longtail.training.stop_request import StoppedError

_FAILED = "failed.json"


@dataclass(frozen=True)
class Failure:
    """Why a run came to no end: the exit code of `longtail train`, and its first line."""

    exit_code: int
    message: str


def carry_out(
    plan: Plan,
    *,
    skip: Callable[[PlannedRun], bool],
    callback: Callable[[PlannedRun], Callback],
    after_each: Callable[[], None],
) -> None:
    """Do what is left of the plan.

    Args:
        plan: the runs.
        skip: whether to leave a run alone, because its data is missing.
        callback: makes who is told what happens in a run.
        after_each: called whenever a run has ended, well or not.

    Raises:
        StoppedError: a signal came; everything is saved.
    """
    for run in plan.runs:
        if RunFolder(run.folder).is_finished or skip(run):
            continue
        (run.folder / _FAILED).unlink(missing_ok=True)
        try:
            train(run.config, out=run.folder, resume=True, callback=callback(run))
        except StoppedError as error:
            raise StoppedError(
                error.reason, error.what, f"saved in {run.folder}", "the same command goes on"
            ) from error
        except LongtailError as error:
            _write_failure(run.folder, Failure(error.exit_code, error.what))
        after_each()


def read_failure(folder: Path) -> Failure | None:
    """Why the last attempt at a run failed; None if it did not."""
    try:
        return Failure(**json.loads((folder / _FAILED).read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _write_failure(folder: Path, failure: Failure) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / _FAILED, json.dumps(vars(failure), indent=1) + "\n")
