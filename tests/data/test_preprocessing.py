from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from longtail.class_counts import ClassCounts
from longtail.data.images import ArrayImages
from longtail.data.loader import train_loader
from longtail.data.open_dataset import LongTailData, open_dataset
from longtail.data.preprocessing import Preprocessing, preprocessing_of
from longtail.data.transforms.auto_augment import AutoAugment
from longtail.data.transforms.crop import CentreCrop, PadCrop, ResizedCrop
from longtail.data.views import BatchKey, ViewedImages


def data(name: str, size: int | None, channels: int) -> LongTailData:
    """A data set with generated images in place of the real ones."""
    side = size or 50
    pixels = np.random.default_rng(0).integers(0, 256, (6, side, side, channels), np.uint8)
    images = ArrayImages(pixels, [0, 0, 0, 0, 1, 1])
    return LongTailData(
        name=name,
        train=images,
        val=images.select([]),
        test=images,
        classes=("a", "b"),
        class_counts=ClassCounts([4, 2]),
        mean=(0.5,) * channels,
        std=(0.25,) * channels,
        in_channels=channels,
        image_size=(size, size) if size else None,
    )


@pytest.mark.parametrize(
    ("name", "size", "channels", "policy", "flip"),
    [
        ("cifar10-lt:100", 32, 3, "cifar10", True),
        ("cifar100-lt", 32, 3, "cifar10", True),
        ("fashion-mnist-lt:50", 28, 1, "cifar10", True),
        ("digits-lt", 8, 1, "svhn", False),
    ],
)
def test_small_images_keep_their_size_and_have_the_policy_of_their_kin(
    name: str, size: int, channels: int, policy: str, flip: bool
) -> None:
    opened = data(name, size, channels)
    found = preprocessing_of(opened)
    assert (found.size, found.policy, found.flip, found.resized) == (size, policy, flip, False)
    views = [found.weak(), found.strong(), found.evaluation()]
    batch = ViewedImages(opened.train, views, mean=found.mean, std=found.std)[
        BatchKey(0, np.arange(6), np.zeros(6, np.int64))
    ]
    assert {view.shape for view in batch.views} == {(6, channels, size, size)}


@pytest.mark.parametrize("name", ["imagenet-lt", "places-lt:/data", "birds/"])
def test_images_of_all_sizes_are_resized_and_have_imagenets_policy(name: str) -> None:
    found = preprocessing_of(data(name, None, 3))
    assert (found.size, found.policy, found.flip, found.resized) == (224, "imagenet", True, True)
    assert found.evaluation().crop.decode_size == 256


def test_small_images_are_resized_when_another_size_is_asked_for() -> None:
    opened = data("cifar10-lt", 32, 3)
    found = preprocessing_of(opened, size=48)
    views = [found.weak(), found.strong(), found.evaluation()]
    batch = ViewedImages(opened.train, views, mean=found.mean, std=found.std)[
        BatchKey(0, np.arange(6), np.zeros(6, np.int64))
    ]
    assert {view.shape for view in batch.views} == {(6, 3, 48, 48)}


def write_images(root: Path, *sizes: tuple[int, int]) -> Path:
    """Two classes with an image of each (height, width)."""
    draw = np.random.default_rng(0)
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        for i, (height, width) in enumerate(sizes):
            pixels = draw.integers(0, 256, (height, width, 3), np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    return root


@pytest.mark.parametrize("side", [20, 32, 64, 96])
def test_small_files_of_one_size_are_padded_and_cropped_as_arrays_are(side: int, tmp_path: Path) -> None:
    opened = open_dataset(write_images(tmp_path, *[(side, side)] * 6), check=True)
    assert (opened.image_size, opened.typical_side) == ((side, side), side)
    found = preprocessing_of(opened)
    assert (found.size, found.resized) == (side, False)
    assert found.weak().crop == PadCrop(side, side // 8)
    batch = next(iter(train_loader(opened.train, found, batch_size=4, views=("weak", "strong"))))
    assert {view.shape for view in batch.views} == {(4, 3, side, side)}


@pytest.mark.parametrize(
    ("sizes", "side", "size"),
    [
        ([(128, 128)] * 6, 128, 128),
        ([(130, 130)] * 6, 130, 128),
        ([(32, 40)] * 6, 32, 32),
        ([(60, 50), (70, 70), (80, 100)] * 3, 70, 64),
        ([(10, 10), (12, 14), (14, 12)] * 3, 12, 32),
        ([(300, 400)] * 6, 300, 224),
    ],
)
def test_other_files_are_resized_to_their_typical_side_in_steps_of_32(
    sizes: list[tuple[int, int]], side: int, size: int, tmp_path: Path
) -> None:
    opened = open_dataset(write_images(tmp_path, *sizes), check=True)
    assert opened.image_size == (sizes[0] if len(set(sizes)) == 1 else None)
    found = preprocessing_of(opened)
    assert (opened.typical_side, found.size, found.resized) == (side, size, True)
    assert preprocessing_of(opened, 48).size == 48


def test_files_that_were_not_checked_have_a_typical_side_all_the_same(tmp_path: Path) -> None:
    opened = open_dataset(write_images(tmp_path, *[(64, 80), (70, 64), (90, 66)] * 3))
    assert (opened.image_size, opened.typical_side) == (None, 64)


def test_a_level_of_augmentation_bounds_every_view() -> None:
    opened = data("birds", None, 3)
    strong, weak, none = (preprocessing_of(opened, augment=level) for level in ("strong", "weak", "none"))
    assert preprocessing_of(opened) == strong
    assert isinstance(strong.training_view("strong").augment, AutoAugment)
    assert strong.training_view("weak").augment is None
    for name in ("weak", "strong"):
        assert weak.training_view(name) == weak.weak()
        assert none.training_view(name) == none.evaluation()
        assert isinstance(none.training_view(name).crop, CentreCrop)


def test_training_on_evaluation_views_draws_nothing() -> None:
    opened = data("cifar10-lt", 32, 3)
    loader = train_loader(opened.train, preprocessing_of(opened, augment="none"), batch_size=6, views=("strong",))
    batch = next(iter(loader))
    like = preprocessing_of(opened)
    key = BatchKey(0, batch.indices.numpy(), np.zeros(6, np.int64))
    expected = ViewedImages(opened.train, [like.evaluation()], mean=like.mean, std=like.std)[key]
    assert batch.views[0].equal(expected.views[0])


@pytest.mark.parametrize(("size", "crop"), [(None, ResizedCrop(224, False, 0.5)), (32, PadCrop(32, 4, False))])
def test_flips_and_the_scale_of_crops_are_as_asked_for(size: int | None, crop: object) -> None:
    found = preprocessing_of(data("birds", size, 3), flip=False, crop_scale=0.5)
    assert found.weak().crop == found.strong().crop == crop


def test_images_are_not_flipped_where_mirrored_classes_were_found() -> None:
    opened = replace(data("signs", 32, 3), mirrored=(("a", "b"),))
    assert not preprocessing_of(opened).flip
    assert preprocessing_of(opened, flip=True).flip
    assert preprocessing_of(data("digits-lt", 8, 1), flip=True).flip


def test_pretrained_weights_bring_their_own_mean_and_std() -> None:
    found = preprocessing_of(data("birds", None, 3), mean=[127 / 255] * 3, std=[128 / 255] * 3)
    assert (found.mean, found.std) == ((127 / 255,) * 3, (128 / 255,) * 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mean": [0.5]}, "mean must have one number per channel, 3, got 1"),
        ({"std": [0.5] * 4}, "std must have one number per channel, 3, got 4"),
        ({"crop_scale": 0.0}, r"crop_scale must be above 0 and at most 1, got 0\.0"),
        ({"crop_scale": 1.5}, r"crop_scale must be above 0 and at most 1, got 1\.5"),
        ({"augment": "heavy"}, "augment must be none, weak, strong or None, got 'heavy'"),
    ],
)
def test_wrong_choices_are_named(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        preprocessing_of(data("birds", None, 3), **given)  # type: ignore[arg-type] # wrong on purpose


def test_a_description_of_before_the_levels_means_what_it_did() -> None:
    old = {"size": 32, "mean": (0.5,), "std": (0.25,), "policy": "svhn", "flip": False, "resized": True}
    found = Preprocessing(**old)  # type: ignore[arg-type] # as JSON has it
    assert found.weak().crop == ResizedCrop(32, False, 0.08)
    assert isinstance(found.training_view("strong").augment, AutoAugment)


def test_mean_and_std_are_those_of_the_data_set() -> None:
    opened = open_dataset("digits-lt:10")
    found = preprocessing_of(opened)
    assert (found.mean, found.std) == (opened.mean, opened.std)
    seen = ViewedImages(opened.train, [found.evaluation()], mean=found.mean, std=found.std)
    pixels = seen[BatchKey(0, np.arange(len(seen)), np.zeros(len(seen), np.int64))].views[0]
    assert abs(float(pixels.mean())) < 0.05
    assert float(pixels.std()) == pytest.approx(1, abs=0.05)


def test_a_wrong_size_is_named() -> None:
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        preprocessing_of(data("birds", None, 3), size=0)
