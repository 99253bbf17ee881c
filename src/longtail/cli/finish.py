"""`longtail finish RUN`."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from longtail._printable import show_lines


def finish(
    run: Annotated[Path, Parameter(name="RUN")],
    /,
    *,
    keep: Literal["last", "best"] | None = None,
) -> int:
    """Turn a run that was stopped into a usable model, without training on: model, predictions, report.

    The run can be resumed afterwards, and finished again.

    Parameters
    ----------
    run
        The folder of the run.
    keep
        Whose weights: those of the last step, or of the best epoch on validation (default: as the run has it).
    """
    from longtail.cli.train import summary
    from longtail.training.training_screen import TrainingScreen

    with TrainingScreen() as screen:
        screen.wait(f"looking at {run}")  # torch takes seconds to start
        from longtail.training import finish_run

        finished = finish_run(run, keep=keep, callback=screen)
    show_lines(summary(finished))
    return 0
