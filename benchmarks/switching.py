"""What it costs a network to go over to the split path or to fitted components at `start`: accuracy while training.

    python -m benchmarks.switching runs/ladder/NAME ...

From metrics.csv: accuracy on the augmented training images in the last epoch before half of the training, the lowest in
the ten epochs after it, and the epoch that is the first to reach the former again. The baseline has no switch, and
shows what is noise.
"""

from pathlib import Path

from benchmarks._trained import record_runs
from longtail.evaluation import read_metrics

AFTER = 10


def switching(accuracy: list[float]) -> dict[str, float | int | None]:
    """The three numbers, from the accuracy by epoch."""
    half = len(accuracy) // 2
    before, after = accuracy[half - 1], accuracy[half:]
    lowest = min(after[:AFTER])
    again = (half + 1 + i for i, value in enumerate(after) if value >= before and i >= after.index(lowest))
    return {"before": before, "lowest": lowest, "again": next(again, None)}


def main() -> None:
    """Measure runs and write their JSON."""
    record_runs("switching", __doc__, lambda run: {"train_accuracy": switching(_accuracy(run))})


def _accuracy(run: Path) -> list[float]:
    return [row["train/accuracy"] or 0.0 for row in read_metrics(run / "metrics.csv")]


if __name__ == "__main__":
    main()
