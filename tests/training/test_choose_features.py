"""Whether the head sees where things are: a grid for images that need it, and none for images that do not."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from longtail.data import LongTailData, open_dataset
from longtail.data.preprocessing import preprocessing_of
from longtail.models import create_model
from longtail.models.stage_feature_net import StageFeatureNet
from longtail.training import choose_features as module
from longtail.training.callback import Callback
from longtail.training.choose_features import FEATURES, Features, choose_features
from longtail.training.frozen_head import sample_rows

EACH = 24


def squares(generator: np.random.Generator, *, place_tells: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """A square on noise: the half of the image that it lies in is the class, or chance and its brightness is."""
    targets = np.repeat([0, 1], EACH)
    images = generator.integers(0, 120, (2 * EACH, 96, 96, 3))
    for image, label in zip(images, targets, strict=True):
        left = 20 + 32 * (label if place_tells else generator.integers(2)) + generator.integers(-6, 7)
        top = generator.integers(20, 60)
        light = generator.integers(60, 130) if place_tells else 60 + 80 * label
        image[top : top + 20, left : left + 20] += light
    return images.astype(np.uint8), targets


def data_of(tmp_path: Path, *, place_tells: bool) -> LongTailData:
    images, targets = squares(np.random.default_rng(0), place_tells=place_tells)
    for number, (pixels, label) in enumerate(zip(images, targets, strict=True)):
        for split in ("train", "test"):
            (tmp_path / split / "ab"[label]).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(tmp_path / split / "ab"[label] / f"{number}.png")
    return open_dataset(str(tmp_path), val_fraction=0.0)


def choice(data: LongTailData) -> Features:
    torch.manual_seed(0)
    backbone = create_model("test_resnet", 2, image_size=96)
    nets = {kind: StageFeatureNet(backbone, 2, features=kind) for kind in FEATURES}
    return choose_features(
        nets,
        data,
        preprocessing_of(data, size=96),
        None,
        {"name": "linear"},
        seed=0,
        workers=0,
        device="cpu",
        progress=Callback().progress,
    )


def test_a_grid_is_taken_where_the_place_tells_the_class(tmp_path: Path) -> None:
    assert choice(data_of(tmp_path, place_tells=True)) == "grid"


def test_whole_images_are_where_a_grid_is_not_clearly_better(tmp_path: Path) -> None:
    assert choice(data_of(tmp_path, place_tells=False)) == "stages"


def test_a_grid_that_does_not_fit_into_memory_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 1000)
    assert choice(data_of(tmp_path, place_tells=True)) == "stages"


def test_the_sample_has_as_many_images_of_each_large_class(tmp_path: Path) -> None:
    data = data_of(tmp_path, place_tells=True)
    rows = sample_rows(data, 20, seed=0)
    assert np.bincount(data.train.targets[rows]).tolist() == [10, 10]
    assert (np.diff(rows) > 0).all()
    assert sample_rows(data, 20, seed=0).tolist() == rows.tolist() != sample_rows(data, 20, seed=1).tolist()
