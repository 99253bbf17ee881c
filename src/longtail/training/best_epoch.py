"""The epoch that was best on validation, and whether the training still gets better.

Best is the highest balanced accuracy on the validation images, the earliest epoch of several. The lines of metrics.csv
tell which that is, so that a run that was killed and resumed finds the same. Test images are never asked.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from longtail._errors import UsageError
from longtail.training.run_config import RunConfig

Rows = Sequence[Mapping[str, float | None]]
_SCORE = "val/balanced"


class BestEpoch(NamedTuple):
    """An epoch, from 1, and its balanced accuracy on validation."""

    epoch: int
    balanced: float


def best_epoch(rows: Rows) -> BestEpoch | None:
    """The best of the epochs so far; None where nothing was validated.

    Example:
        >>> best_epoch([{"epoch": 1, "val/balanced": 0.5}, {"epoch": 2, "val/balanced": 0.7}, {"epoch": 3}])
        BestEpoch(epoch=2, balanced=0.7)
    """
    scored = [BestEpoch(int(row["epoch"] or 0), score) for row in rows if (score := row.get(_SCORE)) is not None]
    return max(scored, key=lambda found: found.balanced, default=None)


def has_stopped_rising(rows: Rows, *, patience: int, last_stage: float) -> bool:
    """Whether `patience` epochs have passed without a better one.

    Args:
        rows: the lines of metrics.csv.
        patience: in epochs.
        last_stage: the epoch with which the method's last stage starts; epochs before it do not count.
    """
    best, now = best_epoch(rows), int(rows[-1]["epoch"] or 0) if rows else 0
    return best is not None and now - max(best.epoch, last_stage) >= patience


def check_validated(config: RunConfig, images: int) -> None:
    """Refuse settings that ask the validation images where there are none."""
    asked = "patience" if config.patience is not None else "keep" if config.keep == "best" else None
    if asked and not images and config.planned_epochs:
        raise UsageError(
            f"{asked} is {getattr(config, asked)}, but {config.data} has no validation images",
            "which epoch is best is never decided on the test images",
            "hold some out: --set val_fraction=0.2",
        )


def describe_kept(keep: str | None, rows: Rows, *, epochs: int) -> str:
    """Whose weights a run keeps, and by which rule.

    Example:
        >>> rows = [{"epoch": 1, "val/balanced": 0.5}, {"epoch": 2, "val/balanced": 0.4}]
        >>> describe_kept("best", rows, epochs=2)
        'weights of epoch 1 of 2, the best on validation (balanced accuracy 50.0 %)'
        >>> describe_kept("last", rows, epochs=9)
        'weights of the last epoch, 2 of 9: the run was stopped'
    """
    best, done = best_epoch(rows), int(rows[-1]["epoch"] or 0) if rows else 0
    if keep == "best" and best is not None:
        score = f"balanced accuracy {100 * best.balanced:.1f} %"
        return f"weights of epoch {best.epoch} of {epochs}, the best on validation ({score})"
    return "weights of the last epoch" + (f", {done} of {epochs}: the run was stopped" if done < epochs else "")
