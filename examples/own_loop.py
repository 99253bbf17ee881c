"""Parts of longtail in a training loop of your own, plain torch: a loss, a sampler's weights, and the metrics.

python examples/own_loop.py [--epochs 30]

Cross-entropy beside balanced softmax on the embedded digits, and cross-entropy whose logits are adjusted afterwards.
"""

import argparse

import torch
from torch import Tensor, nn

from longtail.data import open_dataset
from longtail.evaluation import adjust_logits, evaluate
from longtail.losses import LOSSES


def images_and_labels(split: object) -> tuple[Tensor, Tensor]:
    """All of a split as two tensors, images from 0 to 1."""
    pairs = [split[i] for i in range(len(split))]  # type: ignore[index,arg-type] # a dataset of torch
    return torch.stack([image for image, _ in pairs]).float() / 255, torch.tensor([label for _, label in pairs])


def small_network(classes: int) -> nn.Module:
    """Two convolutions and a linear layer."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, classes)),
    )


def main() -> None:
    """Train by two losses and print balanced and few-shot accuracy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    epochs = parser.parse_args().epochs
    data = open_dataset("digits-lt:100", seed=0)
    counts = data.class_counts
    (images, labels), (test_images, test_labels) = images_and_labels(data.train), images_and_labels(data.test)
    found = {}
    for name in ("cross_entropy", "balanced_softmax"):
        torch.manual_seed(0)
        model, loss = small_network(len(counts)), LOSSES[name](counts)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
        for _ in range(epochs):
            for rows in torch.randperm(len(labels)).split(32):
                optimizer.zero_grad()
                loss(model(images[rows]), labels[rows]).backward()
                optimizer.step()
        with torch.no_grad():
            found[name] = model.eval()(test_images).numpy()
    found["cross_entropy, adjusted"] = adjust_logits(found["cross_entropy"], counts, 1.0)
    for name, logits in found.items():
        result = evaluate(logits, test_labels.numpy(), counts, data.classes)
        few = result.groups["few"].accuracy
        print(f"{name:26} balanced {result.balanced.value:.1%}, few-shot {few.value if few else float('nan'):.1%}")


if __name__ == "__main__":
    main()
