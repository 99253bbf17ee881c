"""ImageNet-LT, Places-LT and iNaturalist 2018 in their official layouts, at their true sizes.

The training lists follow the published number of images of each class. All lines of a class name the same
image, because half a million files would take longer to write than to check.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from longtail._errors import DataError
from longtail.data import open_dataset
from longtail.data.datasets import DATASETS
from longtail.data.inventory import Inventory
from longtail.data.open_dataset import take_inventory
from tests.support.silent_report import SilentReport

COUNTS = json.loads((Path(__file__).parents[1] / "train_class_counts.json").read_text())
Namer = Callable[[int], str]


def write(root: Path, lists: str, name: str, lines: list[tuple[str, int]]) -> None:
    """Write a list, and one image for each path that it names."""
    (root / lists).mkdir(parents=True, exist_ok=True)
    (root / lists / name).write_text("".join(f"{path} {label}\n" for path, label in lines))
    blank = root / "blank.jpg"
    if not blank.exists():
        Image.new("RGB", (4, 4)).save(blank)
    for path in {path for path, _ in lines}:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if not (root / path).exists():
            (root / path).hardlink_to(blank)


def lines(counts: list[int], path: Namer) -> list[tuple[str, int]]:
    return [(path(k), k) for k, count in enumerate(counts) for _ in range(count)]


def numbers(found: Inventory) -> tuple[int, int, int, int, int, int]:
    counts = found.class_counts
    parts = found.count("train"), found.count("val"), found.count("test")
    return *parts, len(found.classes), max(counts), min(counts)


def test_imagenet_lt(tmp_path: Path) -> None:
    def train(k: int) -> str:
        return f"train/n{k:08}/n{k:08}_1.JPEG"

    write(tmp_path, "ImageNet_LT", "ImageNet_LT_train.txt", lines(COUNTS["imagenet-lt"], train))
    write(tmp_path, "ImageNet_LT", "ImageNet_LT_val.txt", lines([20] * 1000, train))
    write(tmp_path, "ImageNet_LT", "ImageNet_LT_test.txt", lines([50] * 1000, lambda k: f"val/{k}.JPEG"))
    found = take_inventory(f"imagenet-lt:{tmp_path}")
    assert numbers(found) == (115_846, 20_000, 50_000, 1000, 1280, 5)
    assert found.problems == ()
    assert found.classes[17] == "n00000017"


def test_places_lt(tmp_path: Path) -> None:
    root = tmp_path / "places-lt"
    write(root, ".", "Places_LT_train.txt", lines(COUNTS["places-lt"], lambda k: f"data_256/a/place {k}/1.jpg"))
    write(root, ".", "Places_LT_val.txt", lines([20] * 365, lambda k: f"val_256/{k}.jpg"))
    write(root, ".", "Places_LT_test.txt", lines([100] * 365, lambda k: f"val_256/{k + 365}.jpg"))
    found = take_inventory("places-lt", root=tmp_path)
    assert numbers(found) == (62_500, 7_300, 36_500, 365, 4980, 5)
    assert found.problems == ()
    assert found.classes[3] == "place 3"


def test_inaturalist_2018_is_measured_on_its_validation_list(tmp_path: Path) -> None:
    def path(k: int) -> str:
        return f"train_val2018/Aves/{k}/{k}.jpg"

    write(tmp_path, "iNaturalist18", "iNaturalist18_train.txt", lines(COUNTS["inaturalist2018"], path))
    write(tmp_path, "iNaturalist18", "iNaturalist18_val.txt", lines([3] * 8142, path))
    data = open_dataset(f"inaturalist2018:{tmp_path}")
    assert (len(data.train), len(data.val), len(data.test)) == (437_513, 0, 24_426)
    assert (len(data.classes), max(data.class_counts), min(data.class_counts)) == (8142, 1000, 2)
    assert data.problems == ()
    image, target = data.test[24_425]
    assert (tuple(image.shape), target) == ((3, 4, 4), 8141)


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """A small Places-LT: all 365 classes, two training images and one test image each."""
    write(tmp_path, ".", "Places_LT_train.txt", lines([2] * 365, lambda k: f"data_256/{k}/1.jpg"))
    write(tmp_path, ".", "Places_LT_test.txt", lines([1] * 365, lambda k: f"val_256/{k}.jpg"))
    return tmp_path


def test_lists_that_are_not_the_published_ones_are_used_and_reported(places: Path) -> None:
    found = take_inventory(f"places-lt:{places}")
    assert [problem.code for problem in found.problems] == ["not-the-published-list"] * 2
    assert "Places_LT_train.txt has 730 images, the published one 62,500" in found.problems[0].message


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (
            "data_256/0/9.jpg 0",
            "missing-image",
            "names 1 image that cannot be found, for example data_256/0/9.jpg",
        ),
        (
            "data_256/0/1.jpg 365",
            "label-out-of-range",
            "line 731 of .* must have a label of 0 to 364, got 365",
        ),
        ("data_256/0/1.jpg", "bad-line", "line 731 of .* must be 'path label', got 'data_256/0/1.jpg'"),
        ("data_256/0/1.jpg -1", "bad-line", "must be 'path label'"),
    ],
)
def test_a_wrong_line_is_refused(places: Path, line: str, code: str, message: str) -> None:
    with (places / "Places_LT_train.txt").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match=message) as caught:
        take_inventory(f"places-lt:{places}")
    assert caught.value.code == code
    assert caught.value.exit_code == 3


def test_a_class_without_training_images_is_refused(places: Path) -> None:
    text = (places / "Places_LT_train.txt").read_text()
    (places / "Places_LT_train.txt").write_text("\n".join(text.splitlines()[:-2]))
    with pytest.raises(DataError, match=r"1 of the 365 classes of .* has no training image, for example class 364"):
        take_inventory(f"places-lt:{places}")


def test_a_folder_without_the_lists_says_where_they_are_published(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"iNaturalist18_train\.txt is neither in") as caught:
        take_inventory(f"inaturalist2018:{tmp_path}")
    assert "classifier-balancing" in caught.value.fix


@pytest.mark.parametrize("name", ["imagenet-lt", "places-lt", "inaturalist2018"])
def test_a_fetch_says_that_the_user_must_register(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="register"):
        DATASETS[name].fetch(tmp_path, SilentReport())
