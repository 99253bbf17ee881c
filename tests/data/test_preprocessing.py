import numpy as np
import pytest

from longtail.class_counts import ClassCounts
from longtail.data.images import ArrayImages
from longtail.data.open_dataset import LongTailData, open_dataset
from longtail.data.preprocessing import preprocessing_of
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
