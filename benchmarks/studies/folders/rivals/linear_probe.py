"""Frozen ImageNet features and scikit-learn's logistic regression: simple, and hard to beat on small folders.

The features are the pooled output of the same network, of the centre of each image. Where the images of `train/`
would take more than 60 % of the budget to embed, the size falls from 128 to 96 or 64. `--class-weight balanced` weights
the images by the inverse size of their class. Nothing here is random: one seed says it all.

    python -m benchmarks.studies.folders.rivals.linear_probe FOLDER --out OUT --seconds 180
"""

import argparse
import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, Subset

from benchmarks.studies.folders.rivals.rival import CoreClock, Task, list_images, parse_task, write_outcome
from benchmarks.studies.folders.rivals.timm_fine_tune import ImageFiles, pretrained, test_view

SMALLER_SIZES = (96, 64)
EMBED_SHARE = 0.6
ITERATIONS_AT_ONCE = 20


@torch.inference_mode()
def embed(model: nn.Module, data: ImageFiles | Subset[tuple[torch.Tensor, int]]) -> NDArray[np.float32]:
    """The features of all images, in order."""
    return torch.cat([model(images) for images, _ in DataLoader(data, 64)]).numpy()


def choose_size(task: Task, model: nn.Module, clock: CoreClock, *, sample: int = 64) -> int:
    """The largest size at which embedding takes at most its share of the budget, measured on a few images."""
    files = list_images(task.folder / "train")
    for size in (task.size, *SMALLER_SIZES):
        data = ImageFiles(files, task.classes, test_view(size))
        some = Subset(data, np.linspace(0, len(data) - 1, min(sample, len(data))).astype(int).tolist())
        before = clock.used
        embed(model, some)
        if (clock.used - before) / len(some) * len(data) <= EMBED_SHARE * task.seconds:
            break
    return size


def fit_head(
    features: NDArray[np.float32], labels: NDArray[np.int64], weight: str | None, clock: CoreClock
) -> LogisticRegression:
    """Fit until converged or out of time."""
    model = LogisticRegression(class_weight=weight, max_iter=ITERATIONS_AT_ONCE, warm_start=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        while True:
            before = clock.used
            model.fit(features, labels)
            if model.n_iter_.max() < ITERATIONS_AT_ONCE or clock.used + (clock.used - before) > clock.seconds:
                return model


def main() -> None:
    """Embed, fit, predict, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--class-weight", choices=("balanced",))
    task = parse_task(parser)
    torch.set_num_threads(1)
    clock = CoreClock(task.seconds)
    classes = task.classes
    model = pretrained(0).eval()
    size = choose_size(task, model, clock)
    train = ImageFiles(list_images(task.folder / "train"), classes, test_view(size))
    scaler = StandardScaler()
    features = scaler.fit_transform(embed(model, train))
    embedded = clock.used
    head = fit_head(features, np.array([label for _, label in train.items]), task.options.class_weight, clock)
    training = clock.used

    files = list_images(task.folder / "test")
    predictions = head.predict(scaler.transform(embed(model, ImageFiles(files, classes, test_view(size)))))
    write_outcome(
        task,
        files,
        [classes[k] for k in predictions],
        training=training,
        clock=clock,
        packages=("scikit-learn", "timm", "torch", "torchvision"),
        size=size,
        core_seconds_embedding=round(embedded, 1),
    )


if __name__ == "__main__":
    main()
