import shutil
from pathlib import Path

import pytest

from longtail._errors import DataError
from longtail.training.run_folder.read import model_folder, open_run


@pytest.fixture
def run(digits_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(digits_run, tmp_path / "runs" / "digits-1"))


def refused(path: Path) -> DataError:
    with pytest.raises(DataError) as caught:
        open_run(path).predictions()
    assert caught.value.exit_code == 3
    return caught.value


def test_what_a_run_knows(run: Path) -> None:
    opened = open_run(run)
    assert opened.settings["data"] == "digits-lt:10"
    assert opened.classes == tuple("0123456789")
    assert len(opened.predictions()) == 540
    assert sum(opened.class_counts) + len(opened.predictions("val")) == 486
    assert model_folder(run) == run / "model" == model_folder(run / "model")


def test_no_such_folder_names_the_nearest(run: Path) -> None:
    error = refused(run.parent / "digit-1")
    assert (error.what, error.fix) == (f"{run.parent / 'digit-1'} does not exist", f"did you mean {run}?")


def test_a_folder_of_runs_names_one(run: Path) -> None:
    assert refused(run.parent).fix == f"name one of them, such as {run}"


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    assert "is not a run: it has no config.yaml" in refused(tmp_path).what
    (tmp_path / "report.html").write_text("")
    assert "is not a run" in refused(tmp_path / "report.html").what


@pytest.mark.parametrize("name", ["model/config.json", "predictions.csv"])
def test_a_run_that_has_not_finished_says_how_it_will(run: Path, name: str) -> None:
    (run / name).unlink()
    error = refused(run)
    assert error.what == f"{run} is not finished: it has no {name}"
    assert error.fix == f"let it finish: longtail train --resume {run}"


def test_a_config_that_is_no_yaml(run: Path) -> None:
    (run / "config.yaml").write_text("a: [")
    assert "config.yaml is not YAML" in refused(run).what


@pytest.mark.parametrize(
    ("text", "message"), [("{", "is broken"), ("[]", "is not of longtail"), ("{}", "is not of longtail")]
)
def test_a_model_description_that_is_none(run: Path, text: str, message: str) -> None:
    (run / "model/config.json").write_text(text)
    assert message in refused(run).what


def test_predictions_with_a_class_missing(run: Path) -> None:
    lines = (run / "predictions.csv").read_text().splitlines()
    cells = lines[7].split(",")
    (run / "predictions.csv").write_text("\n".join([*lines[:7], ",".join([cells[0], "ten", *cells[2:]]), *lines[8:]]))
    error = refused(run)
    assert "line 8: target 'ten' is not among the run's 10 classes" in error.what
    assert error.code == "broken-predictions"


def test_predictions_that_were_cut_off(run: Path) -> None:
    text = (run / "predictions.csv").read_text()
    (run / "predictions.csv").write_text(text[: len(text) // 2])
    assert "the file may be truncated" in refused(run).what
    (run / "predictions.csv").write_text(text.splitlines()[0])
    assert "must hold at least one prediction" in refused(run).what
