"""A plain fine-tuning script with timm: AdamW, one cosine, random crops and mirroring, label smoothing.

Starts from the same ImageNet weights and trains everything at once. Progress is core-time over budget, so the learning
rate reaches zero when the budget ends. All images of `train/` train; nothing is held out.

    python -m benchmarks.studies.folders.rivals.timm_fine_tune FOLDER --out OUT --seed 0 --seconds 180
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import timm
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from benchmarks.studies.folders.rivals import lite0
from benchmarks.studies.folders.rivals.rival import CoreClock, list_images, parse_task, write_outcome

BATCH_SIZE = 32
WEIGHT_DECAY = 0.05
WARM_UP = 0.05
SMALLEST_CROP = 0.35


class ImageFiles(Dataset[tuple[Tensor, int]]):
    """Files of a split, decoded when they are asked for.

    Args:
        paths: the images, each in the folder of its class.
        classes: the names of the classes, in the order of the labels.
        transform: makes the network's input of a PIL image.
    """

    def __init__(self, paths: list[Path], classes: list[str], transform: v2.Transform) -> None:
        index = {name: label for label, name in enumerate(classes)}
        self.items = [(path, index[path.parent.name]) for path in paths]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        path, label = self.items[i]
        with Image.open(path) as image:
            return self.transform(image.convert("RGB")), label


def train_view(size: int) -> v2.Transform:
    """A random crop, perhaps mirrored."""
    return v2.Compose(
        [
            v2.RandomResizedCrop(size, scale=(SMALLEST_CROP, 1), antialias=True),
            v2.RandomHorizontalFlip(),
            *_to_input(),
        ]
    )


def test_view(size: int) -> v2.Transform:
    """The shorter side at `size`, then the centre."""
    return v2.Compose([v2.Resize(size, antialias=True), v2.CenterCrop(size), *_to_input()])


def _to_input() -> list[v2.Transform]:
    return [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(lite0.MEAN, lite0.STD)]


def pretrained(num_classes: int) -> nn.Module:
    """EfficientNet-Lite0 of timm with ImageNet weights and a new classifier; 0 classes for features."""
    model: nn.Module = timm.create_model(lite0.NAME, pretrained=False, num_classes=num_classes)
    lite0.load_backbone(model)
    return model


def learning_rate(progress: float, highest: float) -> float:
    """A linear warm-up, then half a cosine to zero."""
    if progress < WARM_UP:
        return highest * (progress + 0.001) / WARM_UP
    return highest * 0.5 * (1 + math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP)))


def endless(loader: DataLoader[Any]) -> Iterator[tuple[Tensor, Tensor]]:
    """Epoch after epoch."""
    while True:
        yield from loader


def main() -> None:
    """Train, predict, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, default=0.001)
    task = parse_task(parser)
    torch.set_num_threads(1)
    clock = CoreClock(task.seconds)
    torch.manual_seed(task.seed)
    classes = task.classes
    data = ImageFiles(list_images(task.folder / "train"), classes, train_view(task.size))
    loader = DataLoader(data, BATCH_SIZE, shuffle=True, drop_last=len(data) >= BATCH_SIZE)
    model = pretrained(len(classes)).train()
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    )
    loss_function = nn.CrossEntropyLoss(label_smoothing=0.1)
    seen = 0
    for images, labels in endless(loader):
        if clock.progress >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(clock.progress, task.options.lr)
        loss = loss_function(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(images)
    training = clock.used

    files = list_images(task.folder / "test")
    model.eval()
    predictions: list[int] = []
    with torch.inference_mode():
        for images, _ in DataLoader(ImageFiles(files, classes, test_view(task.size)), 64):
            predictions += model(images).argmax(dim=1).tolist()
    write_outcome(
        task,
        files,
        [classes[k] for k in predictions],
        training=training,
        clock=clock,
        packages=("timm", "torch", "torchvision"),
        size=task.size,
        epochs=round(seen / len(data), 2),
        lr=task.options.lr,
    )


if __name__ == "__main__":
    main()
