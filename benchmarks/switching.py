"""What it costs a network to go over to the split path or to fitted components at `start`: accuracy while training.

    python -m benchmarks.switching runs/ladder/NAME ...

From metrics.csv: accuracy on the augmented training images in the last epoch before half of the training, the lowest in
the ten epochs after it, and the epoch that is the first to reach the former again. The baseline has no switch, and
shows what is noise.
"""

import argparse
from pathlib import Path

from benchmarks._record import write_result
from benchmarks._trained import identity
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    for run in parser.parse_args().runs:
        found = switching([row["train/accuracy"] or 0.0 for row in read_metrics(run / "metrics.csv")])
        print(run.name, found)
        command = f"python -m benchmarks.switching runs/ladder/{run.name}"
        write_result(f"switching/{run.name}", identity(run) | {"train_accuracy": found}, command=command)


if __name__ == "__main__":
    main()
