"""Whether components stay where they were fitted: a trained batch norm network is parted, and its statistics go on.

    python -m benchmarks.parting runs/ladder/NAME ...    # runs of the row `baseline`

The network's batch norms are converted and their components fitted, to the class groups or as clusters, with affine
sets such that it computes what it did (`fit_components`). Then come training passes of ordinary batches without a
gradient: weights stay, statistics follow their batches. By the number of passes: balanced accuracy on the run's own
test split, and the distance of the components in deviations a channel, mean over pairs and layers.
"""

import argparse
import statistics
from pathlib import Path

import torch

from benchmarks import _reduced
from benchmarks._record import write_result
from benchmarks._trained import identity, load_trained, recalls
from longtail.data.pipeline import train_loader
from longtail.nn import class_groups, convert_batch_norm, fit_components
from longtail.training.mixture import mixture_row

COMPONENTS = 4
PASSES = (0, 1, 3, 10, 30, 100)


@torch.no_grad()
def measure(run: Path, by_groups: bool) -> dict[str, dict[str, float]]:
    """By the number of passes."""
    config, parts = load_trained(run)
    torch.manual_seed(0)
    model = parts.method.model = convert_batch_norm(parts.method.model, COMPONENTS)
    groups = class_groups(len(parts.data.classes), COMPONENTS, "interleaved")
    loader = train_loader(
        parts.data.train, parts.preprocessing, batch_size=128, views=("strong",), sampler="instance", seed=1, epochs=50
    )
    found: dict[str, dict[str, float]] = {}
    done = 0
    for epoch in range(50):
        loader.set_epoch(epoch)
        for batch in loader:
            if not found:
                fit_components(model, batch.views[0], groups[batch.target] if by_groups else None)
            if done in PASSES:
                distance = mixture_row(model)["mixture/distance"]
                assert distance is not None
                found[str(done)] = {"balanced": statistics.fmean(recalls(config, parts)), "distance": distance}
            if done == PASSES[-1]:
                return found
            model.train()(batch.views[0])
            done += 1
    return found


def main() -> None:
    """Measure runs and write their JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    _reduced.register()
    for run in parser.parse_args().runs:
        found = {name: measure(run, by_groups=name == "class groups") for name in ("class groups", "clusters")}
        for name, by_passes in found.items():
            print(run.name, name, {n: {k: round(v, 3) for k, v in values.items()} for n, values in by_passes.items()})
        command = f"python -m benchmarks.parting runs/ladder/{run.name}"
        write_result(f"parting/{run.name}", identity(run) | {"found": found}, command=command)


if __name__ == "__main__":
    main()
