"""Measure a file of weights that no run of ours wrote: `longtail evaluate --weights FILE --model NAME DATA`.

The outputs of the network are taken for the classes of the data, in its order; their names are not in such files.
Images are normalised as the data is, or for timm's models as timm's own weights are, unless `mean` and `std` say
otherwise.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from longtail._errors import DataError, UsageError, counted
from longtail.data import open_dataset
from longtail.data.images import ImageDataset
from longtail.data.loader import eval_loader
from longtail.data.preprocessing import Preprocessing, preprocessing_of
from longtail.data.splits import SplitName
from longtail.evaluation import evaluate
from longtail.inference.measure import Measurement
from longtail.models import create_model
from longtail.models.base import MODELS
from longtail.models.create_model import check_model_name
from longtail.models.read_weights import read_weights
from longtail.models.weights import classifier_keys, fit_weights

_BATCH = 128


def measure_weights(
    weights: Path,
    model: str,
    data: str,
    *,
    split: SplitName = "test",
    image_size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    many: int = 100,
    few: int = 20,
    root: Path | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Measurement:
    """Measure the network `model` with the weights of a file on images.

    Args:
        weights: a file; see `longtail.models.read_weights`.
        model: the name of the network; see `longtail list models`.
        data: a name, a folder or a CSV.
        split: which of its images.
        image_size: of what the network sees; defaults to that of the images.
        mean: of each channel, for values between 0 and 1.
        std: of each channel.
        many: a class with more training images than this is many-shot.
        few: a class with fewer training images than this is few-shot.
        root: the folder of the named data sets.
        path_column: of a CSV, the column of image files.
        label_column: of a CSV, the column of classes.
        progress: called with the number of images that are done, and of all.
    """
    try:
        check_model_name(model)
        read = read_weights(weights)
    except (ValueError, FileNotFoundError) as error:
        raise UsageError(str(error).replace("pretrained", "--weights", 1), "", "longtail evaluate --help") from error
    found = open_dataset(data, root, path_column=path_column, label_column=label_column)
    images = found.split(split)
    if not len(images):
        raise DataError(f"{data} has no {split} images", "", "choose another --split", code="no-images")
    seen = preprocessing_of(found, image_size, mean=mean or _timm(model, "mean"), std=std or _timm(model, "std"))
    try:
        net = create_model(
            model, len(found.classes), in_channels=found.in_channels, pretrained=False, image_size=seen.size
        )
        fresh = {key: net.state_dict()[key].clone() for key in classifier_keys(net)}
        fit_weights(net, read, weights)
    except ValueError as error:
        raise UsageError(
            str(error).replace("pretrained", "--weights", 1),
            f"names and shapes must be those of {model}",
            "name another --model: longtail list models",
        ) from error
    if fresh and all(torch.equal(net.state_dict()[key], value) for key, value in fresh.items()):
        raise UsageError(
            f"{weights} has no classifier of {counted(len(found.classes), 'class')} for {model}",
            f"its outputs must be the classes of {data}, in this order: {', '.join(found.classes[:4])}, ...",
            "name the data that it was trained for, or train its features on this one: "
            + shlex.join(["longtail", "train", str(data), "--model", model, "--pretrained", str(weights)]),
        )
    logits = _predict(net, seen, images, progress)
    return Measurement(
        evaluate(logits, images.targets, found.class_counts, found.classes, many=many, few=few), found.name, split
    )


def _timm(model: str, key: str) -> tuple[float, ...] | None:
    """What timm's own weights of the model expect; None for ours."""
    if model in MODELS:
        return None
    import timm

    config = timm.get_pretrained_cfg(model.removeprefix("timm/"))
    return None if config is None else tuple(getattr(config, key))


@torch.no_grad()
def _predict(
    net: nn.Module, seen: Preprocessing, images: ImageDataset, progress: Callable[[int, int], None] | None
) -> NDArray[np.float32]:
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    net = net.to(device or "cpu").eval()
    loader = eval_loader(images, replace(seen, augment="none"), batch_size=_BATCH)
    loader.set_epoch(0)
    rows: list[NDArray[np.float32]] = []
    for batch in loader:
        rows.append(net(batch.views[0].to(device or "cpu")).float().cpu().numpy())
        if progress is not None:
            progress(sum(map(len, rows)), len(images))
    return np.concatenate(rows)
