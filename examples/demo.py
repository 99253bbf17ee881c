"""Train on the embedded digits, imbalance 100: plainly, by our default, and by compound batch norm; side by side.

python examples/demo.py [--out runs] [--epochs N]

One seed on a tiny data set: it shows what the tool does. Plain training is cross-entropy from scratch.
"""

import argparse
import shutil
from pathlib import Path
from typing import Any

from longtail.evaluation import Evaluation
from longtail.training import build_config, train
from longtail.training.settings import layer_settings
from longtail.training.training_screen import TrainingScreen

DATA = "digits-lt:100"
RUNS: dict[str, dict[str, Any]] = {
    "plain training": {"method": {"name": "erm", "loss": "cross_entropy"}, "epochs": 30},
    "longtail": {"time": 0.5},  # nothing else said
    "compound batch norm": {"method": {"name": "compound_bn"}, "epochs": 30},
}


def table(results: dict[str, Evaluation]) -> list[str]:
    """Accuracy of each run: all, balanced, by group and by class."""
    columns = {name: _column(result) for name, result in results.items()}
    first = next(iter(results.values()))
    rows = [f"{row:24}" + "".join(f"{_percent(c[row]):>22}" for c in columns.values()) for row in _column(first)]
    head = f"{'':24}" + "".join(f"{name:>22}" for name in columns)
    return [head, *rows, f"({first.definition}; {first.images} test images, one seed)"]


def _column(result: Evaluation) -> dict[str, float | None]:
    column: dict[str, float | None] = {"all": result.top1.value, "balanced": result.balanced.value}
    for group, found in result.groups.items():
        column[f"{group} (classes: {found.classes})"] = found.accuracy.value if found.accuracy else None
    return column | {f"  class {c.name} (images: {c.train})": c.recall for c in result.classes}


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def main() -> None:
    """Train the three and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs"), help="the folder of the runs")
    parser.add_argument("--epochs", type=int, help="of the trainings from scratch")
    arguments = parser.parse_args()
    results = {}
    for name, settings in RUNS.items():
        out = folder_of(arguments.out, name)
        shutil.rmtree(out, ignore_errors=True)  # of the demo before
        flags = {"data": DATA, **settings}
        if arguments.epochs and flags.get("epochs"):
            flags["epochs"] = arguments.epochs
        with TrainingScreen() as screen:
            screen.say(f"\n{name}")
            results[name] = train(build_config(layer_settings(flags)), out=out, callback=screen).evaluation
    print("\n".join(table(results)))
    print(f"report: {folder_of(arguments.out, 'longtail') / 'report.html'}")


def folder_of(out: Path, name: str) -> Path:
    """The folder of a run of the demo."""
    return out / f"demo-{name.replace(' ', '-')}"


if __name__ == "__main__":
    main()
