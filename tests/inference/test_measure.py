import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import accuracy_score, balanced_accuracy_score

import longtail
from longtail._errors import DataError
from longtail.data import open_dataset
from longtail.data.datasets.digits import DIGITS_LT
from longtail.inference.measure import measure


def class_folders(folder: Path, split: str, *, prefix: str = "", indices: range = range(60)) -> Path:
    images = DIGITS_LT.load(Path()).test
    for i in indices:
        place = folder / split / f"{prefix}{images.targets[i]}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images.images[i, :, :, 0]).save(place / f"{i:03}.png")
    return folder


def test_the_runs_own_test_images_give_the_runs_own_numbers(digits_run: Path) -> None:
    found = measure(digits_run)
    assert found.evaluation.metrics == longtail.training.load_run(digits_run).metrics
    assert (found.data, found.split, found.evaluation.images) == ("digits-lt:10", "test", 540)


@pytest.mark.parametrize("split", ["val", "train"])
def test_another_split_of_the_run(digits_run: Path, split: Any) -> None:
    data = open_dataset("digits-lt:10", val_fraction=0.2)
    images = getattr(data, split)
    prediction = longtail.load(digits_run).logits(images).argmax(1)
    found = measure(digits_run, split=split)
    assert found.evaluation.top1.value == pytest.approx(accuracy_score(images.targets, prediction))
    assert found.evaluation.balanced.value == pytest.approx(balanced_accuracy_score(images.targets, prediction))


def test_a_split_is_predicted_where_the_run_did_not_keep_it(digits_run: Path, tmp_path: Path) -> None:
    shutil.copytree(digits_run, tmp_path / "run")
    (tmp_path / "run/model/val_predictions.csv").unlink()
    again, kept = measure(tmp_path / "run", split="val"), measure(digits_run, split="val")
    assert again.evaluation.confusions == kept.evaluation.confusions
    assert again.evaluation.ece.value == pytest.approx(kept.evaluation.ece.value, abs=1e-5)


def test_classes_are_mapped_by_name_and_files_seen_as_in_training(digits_run: Path, tmp_path: Path) -> None:
    # A set without the classes 0 and 3: by their numbers all of its labels would be wrong.
    folder = class_folders(tmp_path, "other", indices=range(200)) / "other"
    shutil.rmtree(folder / "0")
    shutil.rmtree(folder / "3")
    found = measure(digits_run, str(folder))
    kept = [int(path.stem) for path in folder.glob("*/*.png")]
    data = open_dataset("digits-lt:10", val_fraction=0.2)
    prediction = longtail.load(digits_run).logits(data.test.select(np.array(kept))).argmax(1)
    assert found.evaluation.images == len(kept)
    assert found.evaluation.top1.value == accuracy_score(data.test.targets[kept], prediction)
    assert found.evaluation.measured == 8
    assert found.notes == (f"{folder} has no splits: all its images are measured",)


def test_a_folder_of_splits(digits_run: Path, tmp_path: Path) -> None:
    class_folders(tmp_path / "data", "train", indices=range(40))
    class_folders(tmp_path / "data", "test", indices=range(40, 60))
    assert measure(digits_run, str(tmp_path / "data")).evaluation.images == 20
    assert measure(digits_run, str(tmp_path / "data"), split="train").evaluation.images == 40
    with pytest.raises(DataError, match="has no val split"):
        measure(digits_run, str(tmp_path / "data"), split="val")
    shutil.rmtree(tmp_path / "data/train")
    with pytest.raises(DataError, match="but no train/") as caught:
        measure(digits_run, str(tmp_path / "data"))
    assert caught.value.fix.endswith(f"longtail evaluate {digits_run} {tmp_path / 'data/test'}")
    assert measure(digits_run, str(tmp_path / "data/test")).evaluation.images == 20


def test_classes_that_the_run_does_not_know(digits_run: Path, tmp_path: Path) -> None:
    folder = class_folders(tmp_path, "set", indices=range(30)) / "set"
    shutil.copytree(folder / "9", folder / "ten")
    with pytest.raises(DataError, match="has 1 class that the run does not know, for example 'ten'"):
        measure(digits_run, str(folder))
    found = measure(digits_run, str(folder), ignore_unknown=True)
    assert found.evaluation.images == 30
    shutil.rmtree(folder)
    class_folders(tmp_path, "set", prefix="digit ", indices=range(30))
    with pytest.raises(DataError, match=r"no train image of a class that the run knows"):
        measure(digits_run, str(folder), ignore_unknown=True)


def test_data_that_has_changed_since(digits_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "my run"
    shutil.copytree(digits_run, run)
    file = run / "split.csv"
    rows = list(csv.reader(file.open()))
    rows[5][2] = "1" if rows[5][2] == "0" else "0"
    with file.open("w", newline="") as out:
        csv.writer(out).writerows(rows)
    with pytest.raises(DataError, match="has changed since") as caught:
        measure(run, split="train")
    assert caught.value.fix.endswith(f"name other data: longtail evaluate '{run}' DATA")


def test_a_run_without_validation_images(compound_run: Path) -> None:
    with pytest.raises(DataError, match="has no val images"):
        measure(compound_run, split="val")
