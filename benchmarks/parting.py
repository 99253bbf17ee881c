"""Whether components stay where they were fitted: a trained batch norm network is parted, and its statistics go on.

    python -m benchmarks.parting runs/ladder/NAME ...    # runs of the row `baseline`

The network's batch norms are converted and their components fitted, to the class groups or as clusters, with affine
sets such that it computes what it did (`fit_components`). Then come training passes of ordinary batches without a
gradient: weights stay, statistics follow their batches. By the number of passes: balanced accuracy on the run's own
test split, and the distance of the components in deviations a channel, mean over pairs and layers.
"""

import statistics
from pathlib import Path

import torch

from benchmarks._trained import load_trained, recalls, record_runs
from longtail.data.loader import train_loader
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
    starts = {"class groups": True, "clusters": False}
    record_runs(
        "parting",
        __doc__,
        lambda run: {"found": {name: measure(run, by_groups) for name, by_groups in starts.items()}},
    )


if __name__ == "__main__":
    main()
