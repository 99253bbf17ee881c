"""AutoGluon: `MultiModalPredictor` on images, fine-tuning the same ImageNet weights.

Its default network is a Swin transformer that must be downloaded; given here is EfficientNet-Lite0, at the size of the
others. Its `time_limit` counts core-time here instead of the wall clock. All else is its own: it holds out validation
images, keeps the best checkpoints by their accuracy and averages them.

    python -m benchmarks.studies.folders.rivals.autogluon_multimodal FOLDER --out OUT --seed 0 --seconds 180
"""

import argparse
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import timm
import torch
from autogluon.multimodal import MultiModalPredictor
from lightning.pytorch.callbacks import timer

from benchmarks.studies.folders.rivals import lite0
from benchmarks.studies.folders.rivals.rival import CoreClock, list_images, parse_task, write_outcome


def save_checkpoint(folder: Path) -> None:
    """The network as a folder from which AutoGluon loads weights without asking a server."""
    folder.mkdir()
    model: Any = timm.create_model(lite0.NAME, pretrained=False, num_classes=0)
    lite0.load_backbone(model)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    config = dict(model.default_cfg) | {
        "architecture": lite0.NAME,
        "num_features": model.num_features,
        "mean": lite0.MEAN,
        "std": lite0.STD,
    }
    (folder / "config.json").write_text(json.dumps(config))


def as_table(paths: list[Path]) -> pd.DataFrame:
    """Paths and labels as AutoGluon takes them."""
    return pd.DataFrame({"image": [str(path.absolute()) for path in paths], "label": [p.parent.name for p in paths]})


def main() -> None:
    """Train, predict, write."""
    task = parse_task(argparse.ArgumentParser(description=__doc__))
    torch.set_num_threads(1)
    clock = CoreClock(task.seconds)
    timer.time = SimpleNamespace(monotonic=time.process_time)
    checkpoint = task.out.absolute() / "lite0"
    save_checkpoint(checkpoint)
    predictor = MultiModalPredictor(label="label", problem_type="multiclass", path=str(task.out / "model"), verbosity=1)
    predictor.fit(
        as_table(list_images(task.folder / "train")),
        time_limit=int(task.seconds - clock.used),
        seed=task.seed,
        hyperparameters={
            "model.names": ["timm_image"],
            "model.timm_image.checkpoint_name": str(checkpoint),
            "model.timm_image.image_size": task.size,
            # The nearest of its normalisations: mean and deviation 0.5, where the weights have 0.498 and 0.502.
            "model.timm_image.image_norm": "inception",
            "env.num_workers": 0,
            "env.num_workers_inference": 0,
            "env.accelerator": "cpu",
        },
    )
    training = clock.used

    files = list_images(task.folder / "test")
    names = predictor.predict(as_table(files)[["image"]], as_pandas=False)
    write_outcome(
        task,
        files,
        [str(name) for name in names],
        training=training,
        clock=clock,
        packages=("autogluon.multimodal", "timm", "torch", "torchvision"),
        size=task.size,
    )


if __name__ == "__main__":
    main()
