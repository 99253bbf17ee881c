"""Ultralytics: `yolo classify train` with its defaults, from scratch.

Its ImageNet weights are downloads of its own, which an offline machine does not have, and its networks are not timm's:
so this rival starts from random weights, and says how far that gets in the time. Its own `time` setting plans the
epochs; it reads core-time here instead of the wall clock. It wants validation images: it gets one training image of
each class, and the weights of the last epoch are taken. It refuses images below 10 px: such are enlarged for it first.

    python -m benchmarks.studies.folders.rivals.ultralytics_classify FOLDER --out OUT --seed 0 --seconds 180
"""

import argparse
import os
import time
from pathlib import Path
from types import SimpleNamespace

import torch
from PIL import Image
from ultralytics import YOLO, settings
from ultralytics.engine import trainer as trainer_module

from benchmarks.studies.folders.rivals.rival import CoreClock, Task, list_images, parse_task, write_outcome

NETWORK = "yolo11n-cls.yaml"
SMALLEST = 10


def place(source: Path, target: Path, size: int) -> None:
    """A link to an image, or an enlarged copy if it is too small."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(source) as image:
        if min(image.size) >= SMALLEST:
            target.symlink_to(source.absolute())
        else:
            image.resize((size, size), Image.Resampling.BICUBIC).save(target)


def link_folder(task: Task) -> Path:
    """The folder in the layout that it wants, as links: it writes caches beside the images."""
    data = task.out / "data"
    data.mkdir()
    for path in list_images(task.folder / "train"):
        splits = ["train"] if (data / "val" / path.parent.name).is_dir() else ["train", "val"]
        for split in splits:
            place(path, data / split / path.parent.name / path.name, task.size)
    return data


def main() -> None:
    """Train, predict, write."""
    task = parse_task(argparse.ArgumentParser(description=__doc__))
    torch.set_num_threads(1)
    clock = CoreClock(task.seconds)
    settings.update({"sync": False})
    trainer_module.time = SimpleNamespace(time=time.process_time, sleep=time.sleep)
    data = link_folder(task)
    model = YOLO(NETWORK)
    model.train(
        data=str(data.absolute()),
        time=(task.seconds - clock.used) / 3600,
        imgsz=task.size,
        device="cpu",
        workers=0,
        seed=task.seed,
        pretrained=False,
        val=False,
        plots=False,
        amp=False,
        verbose=False,
        project=str(task.out.absolute()),
        name="train",
    )
    training = clock.used

    files = list_images(task.folder / "test")
    trained = YOLO(task.out / "train" / "weights" / "last.pt")
    names: list[str] = []
    for file in files:
        seen = data / "test" / file.parent.name / file.name
        place(file, seen, task.size)
        (result,) = trained.predict(os.fspath(seen), imgsz=task.size, device="cpu", verbose=False)
        names.append(result.names[result.probs.top1])
    write_outcome(
        task,
        files,
        names,
        training=training,
        clock=clock,
        packages=("ultralytics", "torch", "torchvision"),
        size=task.size,
        network=NETWORK,
        epochs=model.trainer.epoch + 1,
    )


if __name__ == "__main__":
    main()
