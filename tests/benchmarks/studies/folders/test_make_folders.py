"""The folders of the study are the same every time."""

from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.studies.folders.make_folders import checksum, class_sizes, make_named, summary
from longtail.data import open_dataset


def test_the_digits_become_one_file_an_image_with_its_pixels(tmp_path: Path) -> None:
    make_named("digits-lt:100", tmp_path / "digits")
    data = open_dataset("digits-lt:100")
    assert list(class_sizes(tmp_path / "digits" / "train").values()) == list(data.class_counts)
    assert set(class_sizes(tmp_path / "digits" / "test").values()) == {54}
    pixels, label = data.train[0]
    with Image.open(tmp_path / "digits" / "train" / str(label) / "00000.png") as image:
        np.testing.assert_array_equal(np.asarray(image), pixels[0].numpy())


def test_the_checksum_is_that_of_the_study_and_changes_with_a_pixel(tmp_path: Path) -> None:
    folder = tmp_path / "digits-lt"
    make_named("digits-lt:100", folder)
    before = checksum(folder)
    assert before in summary(folder)
    first = next((folder / "test" / "0").iterdir())
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(first)
    assert checksum(folder) != before


def test_test_images_can_be_fewer_and_are_the_same_every_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_named("digits-lt:100", tmp_path / name, test_each=20)
    assert set(class_sizes(tmp_path / "one" / "test").values()) == {20}
    assert checksum(tmp_path / "one") == checksum(tmp_path / "two")
