from pathlib import Path

import numpy as np
import pytest

from longtail._errors import DataError
from longtail.data import FileImages, open_dataset
from longtail.data.check import check_data
from longtail.data.open_dataset import data_root, split_inventory, take_inventory
from tests.support.image_folders import write_image_folders


def names(data: object) -> set[str]:
    assert isinstance(data, FileImages)
    return set(data.paths)


def test_a_benchmark_trains_on_all_of_its_training_images() -> None:
    data = open_dataset("digits-lt:10")
    assert len(data.val) == 0
    assert data.class_counts.total == len(data.train) == 486
    assert (data.in_channels, data.image_size) == (1, (8, 8))
    assert np.bincount(data.test.targets).tolist() == [54] * 10
    image, _ = data.train[0]
    assert image.shape == (1, 8, 8)


def test_a_validation_split_is_drawn_from_train_if_asked_for() -> None:
    whole, parted = open_dataset("digits-lt"), open_dataset("digits-lt", val_fraction=0.25)
    assert len(parted.train) + len(parted.val) == len(whole.train)
    assert len(parted.test) == len(whole.test)
    assert parted.class_counts.total == len(parted.train)
    assert sorted(np.unique(parted.val.targets)) == list(range(10))


def test_the_seed_chooses_the_images_and_not_their_number() -> None:
    first, same, other = (open_dataset("digits-lt", seed=seed) for seed in (0, 0, 1))
    pixels = [data.train[3][0].tolist() for data in (first, same, other)]
    assert pixels[0] == pixels[1]
    assert first.class_counts == other.class_counts
    total = [sum(int(data.train[i][0].sum()) for i in range(len(data.train))) for data in (first, other)]
    assert total[0] != total[1]


def test_own_images_without_a_test_split_are_parted_in_three(tmp_path: Path) -> None:
    data = open_dataset(write_image_folders(tmp_path, {"a": 40, "b": 10, "c": 2, "d": 1}))
    assert np.bincount(data.test.targets, minlength=4).tolist() == [8, 2, 1, 0]
    assert np.bincount(data.val.targets, minlength=4).tolist() == [3, 1, 0, 0]
    assert list(data.class_counts) == [29, 7, 1, 1]
    parts = [names(part) for part in (data.train, data.val, data.test)]
    assert len(set.union(*parts)) == sum(map(len, parts)) == 53
    assert len(data.notes) == 2


def test_classes_with_few_images_are_not_validated_and_that_is_said(tmp_path: Path) -> None:
    write_image_folders(tmp_path, {f"train/{name}": n for name, n in {"a": 30, "b": 5, "c": 4, "d": 3}.items()})
    write_image_folders(tmp_path, {f"test/{name}": 1 for name in "abcd"})
    data = open_dataset(tmp_path)
    assert np.bincount(data.val.targets, minlength=4).tolist() == [3, 1, 0, 0]
    assert list(data.class_counts) == [27, 4, 4, 3]
    (note,) = data.notes
    assert note.endswith("; 2 classes with fewer than 5 keep theirs and are not validated")
    assert np.bincount(open_dataset(tmp_path, val_smallest=2).val.targets).tolist() == [3, 1, 1, 1]


def test_nothing_is_validated_where_all_classes_have_few_images(tmp_path: Path) -> None:
    data = open_dataset(write_image_folders(tmp_path, {"a": 4, "b": 3, "c": 1}))
    assert (len(data.val), np.bincount(data.test.targets, minlength=3).tolist()) == (0, [1, 1, 0])
    assert data.notes[1] == "no class has 5 training images: none are held out for validation"


def test_one_image_of_each_class_leaves_nothing_to_measure_on(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="one image of each class and no test split") as caught:
        open_dataset(write_image_folders(tmp_path, {"a": 1, "b": 1}))
    assert caught.value.code == "no-test"


def test_a_benchmark_validates_its_smallest_classes_too() -> None:
    data = open_dataset("digits-lt:40", val_fraction=0.1)
    assert min(data.class_counts) + 1 == 3
    assert len(np.unique(data.val.targets)) == 10


def test_given_splits_are_kept(tmp_path: Path) -> None:
    write_image_folders(tmp_path, {"train/a": 5, "train/b": 5, "val/a": 2, "val/b": 2, "test/a": 3, "test/b": 3})
    data = open_dataset(tmp_path, val_fraction=0.5)
    assert (len(data.train), len(data.val), len(data.test)) == (10, 4, 6)
    assert data.notes == ()


def test_a_validation_split_takes_the_place_of_a_missing_test_split(tmp_path: Path) -> None:
    write_image_folders(tmp_path, {"train/a": 20, "train/b": 20, "val/a": 2, "val/b": 2})
    data = open_dataset(tmp_path)
    assert (len(data.train), len(data.val), len(data.test)) == (36, 4, 4)
    assert all(name.startswith("train") for name in names(data.val))
    assert all(name.startswith("val") for name in names(data.test))


def test_a_check_leaves_out_unreadable_files_and_says_so(tmp_path: Path) -> None:
    write_image_folders(tmp_path, {"train/a": 4, "train/b": 4, "test/a": 1, "test/b": 1})
    (tmp_path / "train" / "a" / "1.png").write_bytes(b"not an image")
    data = open_dataset(tmp_path, val_fraction=0, check=True)
    assert list(data.class_counts) == [3, 4]
    assert "train/a/1.png" not in names(data.train)
    assert [problem.code for problem in data.problems] == ["unreadable"]
    assert list(open_dataset(tmp_path, val_fraction=0).class_counts) == [4, 4]


def test_a_check_of_a_benchmark_finds_its_problems() -> None:
    checked = open_dataset("digits-lt:10", check=True)
    assert checked.problems == check_data(take_inventory("digits-lt:10")).problems
    assert len(checked.train) == len(open_dataset("digits-lt:10").train)


def test_one_inventory_serves_the_check_and_the_split(tmp_path: Path) -> None:
    write_image_folders(tmp_path, {"a": 40, "b": 10})
    inventory = take_inventory(tmp_path)
    once = split_inventory(check_data(inventory).data, seed=3, val_fraction=0.2)
    again = open_dataset(tmp_path, seed=3, val_fraction=0.2, check=True)
    for part in ("train", "val", "test"):
        assert names(getattr(once, part)) == names(getattr(again, part))
    assert once.notes == again.notes


def test_a_class_missing_from_test_does_not_shift_the_others(tmp_path: Path) -> None:
    write_image_folders(tmp_path, {"train/a": 2, "train/b": 2, "train/c": 2, "test/c": 1})
    data = open_dataset(tmp_path)
    assert data.test.targets.tolist() == [2]
    assert data.problems[0].code == "class-missing-from-test"


def test_the_root_is_the_argument_then_the_environment_then_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LONGTAIL_DATA", str(tmp_path))
    assert data_root("there") == Path("there")
    assert data_root() == tmp_path
    monkeypatch.delenv("LONGTAIL_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root() == tmp_path / "cache" / "longtail" / "data"


def test_missing_data_names_the_command_that_fetches_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="longtail data fetch cifar100-lt --root") as caught:
        open_dataset("cifar100-lt", root=tmp_path)
    assert caught.value.code == "not-fetched"


def test_numbers_as_labels_are_ordered_by_value(tmp_path: Path) -> None:
    assert open_dataset(write_image_folders(tmp_path, {"10": 2, "9": 2, "100": 2})).classes == ("9", "10", "100")
