"""The data sets of the experiments: what is held out is never trained on, and the test takes no part."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.studies.compound_bn.reduced_datasets import REDUCED_DATASETS, Variant
from longtail.data import open_dataset
from longtail.data.datasets.digits import DIGITS_LT
from longtail.data.images import ArrayImages


def _as_set(images: object) -> set[bytes]:
    assert isinstance(images, ArrayImages)
    return {image.tobytes() for image in images.images}


@pytest.mark.parametrize("seed", [0, 1])
def test_held_out_images_come_from_training_and_are_not_trained_on(seed: int) -> None:
    chosen_by, published = (
        REDUCED_DATASETS["digits-lt-val"].find(Path(), 10, seed),
        open_dataset("digits-lt:10", seed=seed),
    )
    held_out = _as_set(chosen_by.splits["test"])
    assert not held_out & _as_set(chosen_by.splits["train"])
    assert not held_out & _as_set(published.test)
    assert np.bincount(chosen_by.splits["test"].targets).tolist() == [24] * 10


def test_classes_keep_their_counts_where_enough_images_are_left() -> None:
    found = REDUCED_DATASETS["digits-lt-val"].find(Path(), 10, 0)
    assert np.bincount(found.splits["train"].targets).tolist() == [96, 92, 71, 55, 43, 33, 25, 20, 15, 12]


def test_a_share_thins_all_classes_alike() -> None:
    found = Variant(DIGITS_LT, halve=False, share=0.5).find(Path(), 10, 0)
    assert np.bincount(found.splits["train"].targets).tolist() == [60, 46, 35, 27, 21, 16, 12, 10, 7, 6]


def test_a_halved_image_is_the_mean_of_each_two_by_two_pixels() -> None:
    found = Variant(DIGITS_LT, halve=True).find(Path(), 10, 0)
    full, half = open_dataset("digits-lt:10").train, found.splits["train"]
    assert isinstance(full, ArrayImages)
    assert isinstance(half, ArrayImages)
    image = full.images[7, :, :, 0].astype(float)
    for row in range(4):
        for column in range(4):
            mean = image[2 * row : 2 * row + 2, 2 * column : 2 * column + 2].mean()
            assert abs(half.images[7, row, column, 0] - mean) <= 0.5
