"""Train some methods with some seeds on one data set and compare them with the first, with paired intervals.

python examples/compare_methods.py [DATA] [--methods cross_entropy balanced_softmax tau_norm] [--seeds 2] [--epochs 10]
"""

import argparse
import statistics
from pathlib import Path

import longtail


def main() -> None:
    """Print a line for each method, and what differs between the first seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default="digits-lt:100")
    parser.add_argument("--methods", nargs="+", default=["cross_entropy", "balanced_softmax", "tau_norm"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--model", default="resnet8")
    parser.add_argument("--out", type=Path, default=Path("runs/compare-methods"), help="the folder of the runs")
    arguments = parser.parse_args()
    runs = {
        method: [
            longtail.train(
                arguments.data,
                method=method,
                model=arguments.model,
                pretrained=False,
                epochs=arguments.epochs,
                seed=seed,
                out=arguments.out / f"{method}-{seed}",
                show=False,
            )
            for seed in range(arguments.seeds)
        ]
        for method in arguments.methods
    }
    for method, own in runs.items():
        values = [100 * (run.metrics["balanced"] or 0) for run in own]
        spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        print(f"{method:20} balanced {statistics.mean(values):.1f}{spread} %")
    first = [own[0].path for own in runs.values()]
    found = longtail.compare(*first)
    for name in list(found.evaluations)[1:]:
        print(found.verdict(name))


if __name__ == "__main__":
    main()
