"""Train batch norm and compound batch norm on the embedded digits, and print the two side by side.

python examples/demo.py [--out runs] [--epochs N]

One seed on a tiny data set: it shows how the tool works, and says nothing about which method is better.
"""

import argparse
import shutil
from pathlib import Path

from longtail.evaluation import Evaluation
from longtail.training import build_config, train
from longtail.training.settings import layer_settings
from longtail.training.training_screen import TrainingScreen

RUNS = {"batch norm": "erm", "compound batch norm": "compound_bn"}


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
        column[f"{group} ({found.classes} classes)"] = found.accuracy.value if found.accuracy else None
    return column | {f"  class {c.name} ({c.train} images)": c.recall for c in result.classes}


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def main() -> None:
    """Train the two and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs"), help="the folder of the runs")
    parser.add_argument("--epochs", type=int, help="those of the recipe if not given")
    arguments = parser.parse_args()
    results = {}
    for name, method in RUNS.items():
        out = arguments.out / f"demo-{method}"
        shutil.rmtree(out, ignore_errors=True)  # of the demo before
        flags = {"data": "digits-lt", "method": {"name": method}, "epochs": arguments.epochs}
        with TrainingScreen() as screen:
            screen.say(f"{name}: training on the embedded digits-lt")
            results[name] = train(build_config(layer_settings(flags)), out=out, callback=screen).evaluation
    print("\n".join(table(results)))
    for method in RUNS.values():
        print(f"report: {arguments.out / f'demo-{method}' / 'report.html'}")


if __name__ == "__main__":
    main()
