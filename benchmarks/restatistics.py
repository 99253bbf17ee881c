"""What a trained network says when its batch norms' running statistics are estimated anew from other batches.

    python -m benchmarks.restatistics runs/ladder/NAME

Weights stay; statistics are the plain average over 40 batches of 128 training images, weak or strong view, drawn
as in training or with all classes alike. The accuracy is that of the run's own test split.
"""

import argparse
import copy
from pathlib import Path

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from benchmarks import _reduced
from benchmarks._record import write_result
from benchmarks._trained import load_trained, recalls
from longtail.data.loader import train_loader
from longtail.nn import CompoundBatchNorm
from longtail.training.build import Parts

BATCHES = 40


@torch.no_grad()
def estimate(parts: Parts, view: str, sampler: str) -> None:
    """Average the statistics over batches of this kind."""
    model = parts.method.model.train()
    for module in model.modules():
        if isinstance(module, _BatchNorm | CompoundBatchNorm):
            module.momentum = None
            assert module.num_batches_tracked is not None
            module.num_batches_tracked.zero_()
    data, seen = parts.data.train, parts.preprocessing
    loader = train_loader(data, seen, batch_size=128, views=(view,), sampler=sampler, seed=1, epochs=1)
    loader.set_epoch(0)
    for _, batch in zip(range(BATCHES), loader, strict=False):
        model(batch.views[0])


def main() -> None:
    """Measure a run and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    run = parser.parse_args().run
    _reduced.register()
    config, parts = load_trained(run)
    trained = copy.deepcopy(parts.method.model.state_dict())
    found = {}
    for name in ("as trained", "strong instance", "strong class_balanced", "weak instance", "weak class_balanced"):
        parts.method.model.load_state_dict(trained)
        if name != "as trained":
            estimate(parts, *name.split())
        recall = recalls(config, parts)
        balanced = sum(recall) / len(recall)
        found[name] = {"balanced": balanced, "recall": recall}
        print(f"{name:22} {100 * balanced:.1f}  {' '.join(f'{100 * r:.0f}' for r in recall)}", flush=True)
    settings = {"run": run.name, "batches": BATCHES, "settings": config.as_dict()}
    name = f"restatistics/{run.name}"
    write_result(name, settings | {"found": found}, command=f"python -m benchmarks.restatistics {run}")


if __name__ == "__main__":
    main()
