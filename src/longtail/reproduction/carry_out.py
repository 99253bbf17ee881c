"""Carry out a plan, one run after another; each is an ordinary run that resumes where it stopped.

A finished run is not repeated. A run that fails leaves `failed.json` in its folder and the others go on; the next
command tries it again, from its last checkpoint. A request to stop ends everything, and the same command resumes it.
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
    """Why a run failed: the exit code of `longtail train`, and the first line of its error."""

    exit_code: int
    message: str


def carry_out(
    plan: Plan,
    *,
    skip: Callable[[PlannedRun], bool],
    callback: Callable[[PlannedRun], Callback],
    after_each: Callable[[], None],
) -> None:
    """Carry out the runs that are not finished.

    Args:
        plan: the runs.
        skip: whether to skip a run, because its data is missing.
        callback: makes the callback of a run.
        after_each: called whenever a run has ended, whether it finished or failed.

    Raises:
        StoppedError: a signal arrived; everything is saved.
    """
    for run in plan.runs:
        if RunFolder(run.folder).is_finished or skip(run):
            continue
        (run.folder / _FAILED).unlink(missing_ok=True)
        try:
            train(run.config, out=run.folder, resume=True, callback=callback(run))
        except StoppedError as error:
            raise StoppedError(
                error.reason, error.what, f"saved in {run.folder}", "run the same command again to resume"
            ) from error
        except LongtailError as error:
            _write_failure(run.folder, Failure(error.exit_code, error.what))
        after_each()


def read_failure(folder: Path) -> Failure | None:
    """Why the last attempt at a run failed; None if it did not fail."""
    try:
        return Failure(**json.loads((folder / _FAILED).read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _write_failure(folder: Path, failure: Failure) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / _FAILED, json.dumps(vars(failure), indent=1) + "\n")
