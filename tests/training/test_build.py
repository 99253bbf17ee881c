from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import longtail
from longtail.data import LongTailData, open_dataset
from longtail.data.images import ArrayImages
from longtail.training import build_config
from longtail.training.build import batch_size_for, build_run, open_data
from tests.support.drawn_signs import write_sign_folders
from tests.support.image_folders import write_image_folders

SMALL: dict[str, Any] = {"method": {"name": "erm"}, "model": {"name": "resnet8"}, "epochs": 1, "workers": 0}


@pytest.mark.parametrize(
    ("images", "size"), [(2, 2), (31, 31), (32, 32), (1_999, 32), (2_000, 64), (19_999, 64), (20_000, 128)]
)
def test_small_sets_have_small_batches_and_none_larger_than_the_set(images: int, size: int) -> None:
    found = ArrayImages(np.zeros((images, 1, 1, 1), np.uint8), np.zeros(images, np.int64))
    assert batch_size_for(build_config({}), found) == size
    assert batch_size_for(build_config({"batch_size": 48}), found) == 48


def test_what_the_data_decides_is_written_into_the_settings(tmp_path: Path) -> None:
    config = build_config(SMALL | {"data": str(write_image_folders(tmp_path, {"a": 30, "b": 9}))})
    parts = build_run(config)
    found = parts.config
    assert (found.batch_size, found.image_size) == (len(parts.data.train), 32)
    assert (found.flip, found.augment, found.crop_scale) == (True, "strong", 0.08)
    again = build_run(found)
    assert (again.config, again.preprocessing) == (found, parts.preprocessing)


def test_settings_beat_what_the_data_decides(tmp_path: Path) -> None:
    chosen = {"batch_size": 5, "image_size": 40, "flip": False, "augment": "weak", "crop_scale": 0.5}
    data = str(write_image_folders(tmp_path, {"a": 30, "b": 9}))
    parts = build_run(build_config(SMALL | chosen | {"data": data}))
    assert {name: getattr(parts.config, name) for name in chosen} == chosen
    seen = parts.preprocessing
    assert (seen.size, seen.flip, seen.augment, seen.crop_scale) == (40, False, "weak", 0.5)


@pytest.fixture(scope="module")
def signs(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], LongTailData]:
    folder = write_sign_folders(tmp_path_factory.mktemp("signs"), 24, ("stop", "turn left", "turn right"))
    settings = SMALL | {"data": str(folder)}
    return settings, open_data(build_config(settings))


def test_mirrored_classes_turn_flips_off_and_that_is_said(signs: tuple[dict[str, Any], LongTailData]) -> None:
    settings, data = signs
    assert data.mirrored == (("turn left", "turn right"),)
    parts = build_run(build_config(settings), data)
    assert (parts.preprocessing.flip, parts.config.flip, parts.preprocessing.size) == (False, False, 32)
    said = "mirrored, 'turn left' looks like 'turn right': training does not mirror images; --flip does all the same"
    assert parts.data.notes == (*data.notes, said)
    assert parts.data.problems == ()


def test_who_asks_for_flips_has_them_and_is_warned(signs: tuple[dict[str, Any], LongTailData]) -> None:
    settings, data = signs
    parts = build_run(build_config(settings | {"flip": True}), data)
    assert parts.preprocessing.flip
    assert parts.data == data
    assert [problem.code for problem in data.problems] == ["mirrored-classes"]


def test_who_asks_for_none_hears_nothing_of_them(signs: tuple[dict[str, Any], LongTailData]) -> None:
    settings, data = signs
    parts = build_run(build_config(settings | {"flip": False}), data)
    assert parts.data == replace(data, problems=())


@pytest.mark.parametrize("method", ["erm", "compound_bn"])
@pytest.mark.parametrize(
    "counts",
    [{"a": 9, "b": 6}, {"a": 9, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 2, "c": 1, "d": 1}, {"a": 12, "b": 3, "c": 2}],
)
def test_two_classes_and_classes_of_one_image_are_trained(counts: dict[str, int], method: str, tmp_path: Path) -> None:
    folder = write_image_folders(tmp_path / "few", counts)
    data = open_dataset(folder, check=True)
    assert min(data.class_counts) >= 1
    assert sum(map(len, (data.train, data.val, data.test))) == sum(counts.values())
    run = longtail.train(folder, method=method, epochs=1, model="resnet8", workers=0, out=tmp_path / "run", show=False)
    assert run.metrics["balanced"] is not None
    assert (run.path / "report.html").is_file()
