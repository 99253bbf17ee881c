import base64
import csv
from pathlib import Path

import numpy as np
import pytest

from longtail.evaluation import evaluate, read_predictions, write_predictions
from tests.support.simulated_logits import simulate

DATA = simulate(12, images_per_class=4)
PATHS = [f"test/{i}.png" for i in range(len(DATA.target))]
STRANGE = [
    "<img src=x onerror=alert(1)>",
    'say "cheese", please',
    "🦜 κακάπο",
    "x" * 200,
    " space ",
    "two\nlines",
]


def write(file: Path, classes: list[str] = DATA.classes) -> None:
    write_predictions(file, paths=PATHS, target=DATA.target, logits=DATA.logits, classes=classes)


def test_what_is_written_is_read_back_to_the_last_bit(tmp_path: Path) -> None:
    file = tmp_path / "predictions.csv"
    write(file)
    found = read_predictions(file, DATA.classes)
    assert found.paths == tuple(PATHS)
    np.testing.assert_array_equal(found.target, DATA.target)
    np.testing.assert_array_equal(found.logits, DATA.logits)
    before = evaluate(DATA.logits, DATA.target, DATA.counts, replicates=20)
    assert evaluate(found.logits, found.target, DATA.counts, replicates=20) == before


def test_class_names_and_paths_may_hold_anything(tmp_path: Path) -> None:
    file = tmp_path / "predictions.csv"
    logits = np.eye(6, dtype=np.float32)[[3, 1, 2, 0, 5, 4]]
    paths = ["a,b.png", 'q".png', "n\nl.png", "é.png", "\udcff.png", ""]
    write_predictions(file, paths=paths, target=[0, 1, 2, 3, 4, 5], logits=logits, classes=STRANGE)
    found = read_predictions(file, STRANGE)
    assert found.paths == tuple(paths)
    np.testing.assert_array_equal(found.logits, logits)


def test_any_csv_reader_sees_names_and_can_decode_the_logits(tmp_path: Path) -> None:
    file = tmp_path / "predictions.csv"
    write(file)
    with file.open(newline="") as source:
        line = next(csv.DictReader(source))
    assert line["target"] == DATA.classes[DATA.target[0]]
    assert line["prediction"] == DATA.classes[DATA.logits[0].argmax()]
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(line["logits"]), "<f4"), DATA.logits[0])


def test_ten_thousand_images_of_a_hundred_classes_take_six_megabytes(tmp_path: Path) -> None:
    data = simulate(100, images_per_class=100)
    file = tmp_path / "predictions.csv"
    paths = [f"test/{i:05}.png" for i in range(10_000)]
    write_predictions(file, paths=paths, target=data.target, logits=data.logits, classes=data.classes)
    assert file.stat().st_size < 6_000_000


def test_a_failed_write_leaves_the_previous_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "predictions.csv"
    write(file)
    before = file.read_bytes()
    broken = [
        *PATHS[:-1],
        "\ud800",
    ]  # a surrogate that no file system gives: refused by the encoder, at the end
    with pytest.raises(UnicodeEncodeError):
        write_predictions(file, paths=broken, target=DATA.target, logits=DATA.logits, classes=DATA.classes)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_missing_columns_are_named(tmp_path: Path) -> None:
    file = tmp_path / "predictions.csv"
    file.write_text("path,label\na.png,cat\n")
    with pytest.raises(ValueError, match=r"lacks target, prediction, logits; is it the predictions\.csv of a run"):
        read_predictions(file, ["cat", "dog"])


def test_a_class_that_the_run_does_not_have_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "predictions.csv"
    write(file)
    classes = ["otherwise" if name == DATA.classes[DATA.target[2]] else name for name in DATA.classes]
    with pytest.raises(ValueError, match=r"line \d+: (target|prediction) '.*' is not among the run's 12 classes"):
        read_predictions(file, classes)


def test_too_few_classes_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "predictions.csv"
    write(file)
    with pytest.raises(ValueError, match="one number for each of 11 classes, got 12"):
        read_predictions(file, DATA.classes[:-1])


def test_classes_in_another_order_are_noticed(tmp_path: Path) -> None:
    file = tmp_path / "predictions.csv"
    write(file)
    with pytest.raises(ValueError, match="classes are in another order"):
        read_predictions(file, DATA.classes[::-1])


def test_a_file_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "predictions.csv"
    write(file)
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(ValueError, match=r"line 49: logits must"):
        read_predictions(file, DATA.classes)
    file.write_text("path,target,prediction,confidence,logits\n")
    with pytest.raises(ValueError, match="at least one prediction, got none"):
        read_predictions(file, DATA.classes)


def test_paths_must_match_the_logits(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="paths must have one entry for each row of logits, 1 in all, got 2"):
        write_predictions(tmp_path / "p.csv", paths=["a", "b"], target=[0], logits=[[1.0, 0.0]], classes=["a", "b"])


def test_carriage_returns_in_names_round_trip(tmp_path: Path) -> None:
    names, paths = ("a\r", "b\r\nc"), ("x\ry.png", "\r")
    write_predictions(tmp_path / "p.csv", paths=paths, target=[0, 1], logits=[[1.0, 0.0], [0.0, 1.0]], classes=names)
    found = read_predictions(tmp_path / "p.csv", names)
    assert found.paths == paths
    assert found.target.tolist() == [0, 1]
