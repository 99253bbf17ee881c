import inspect
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import longtail
from longtail._errors import LongtailError, UsageError
from longtail.cli import run
from longtail.cli.train import train as command
from longtail.training import load_run


def test_a_trained_run_has_its_numbers_and_none_where_a_group_is_empty(tmp_path: Path) -> None:
    found = longtail.train(
        "digits-lt:10",
        method="erm",
        model="resnet8",
        epochs=1,
        out=tmp_path / "run",
        show=False,
        max_time=5,
        loggers=["tensorboard"],
    )
    assert list((tmp_path / "run/tensorboard").glob("events.*"))
    assert found.path == tmp_path / "run"
    assert found.metrics["balanced"] == pytest.approx(found.evaluation.balanced.value)
    other = longtail.train(config=tmp_path / "run/config.yaml", out=tmp_path / "again", show=False, seed=0)
    assert other.metrics == found.metrics
    assert "balanced accuracy" in found._repr_html_()


def test_the_settings_are_those_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    longtail.train(
        "digits-lt:10",
        method={"name": "erm", "loss": "balanced_softmax"},
        model="resnet8",
        epochs=1,
        lr=0.01,
        settings={"optim": {"momentum": 0.8}, "val_fraction": 0.1},
        out=tmp_path / "run",
        show=False,
    )
    flags = ["--method", "erm", "--set", "method.loss=balanced_softmax", "--model", "resnet8", "--epochs", "1"]
    flags += ["--lr", "0.01", "--set", "optim.momentum=0.8", "--set", "val_fraction=0.1", "--dry-run"]
    assert run(["train", "digits-lt:10", *flags]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == yaml.safe_load((tmp_path / "run/config.yaml").read_text())


def test_every_flag_of_the_command_is_an_argument() -> None:
    flags = inspect.signature(command).parameters.keys() - {"set_", "dry_run", "seeds"}  # in Python, a loop
    assert flags == inspect.signature(longtail.train).parameters.keys() - {"settings", "show"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "DATA is missing"),
        ({"data": "digits-lt", "method": "emr"}, "no 'emr' among the methods"),
        ({"data": "digits-lt", "settings": {"epoch": 1}}, "did you mean epochs?"),
        ({"data": "digits-lt", "epoch": 1}, "train has no argument 'epoch'"),
        ({"data": "digits-lt", "epochs": -1}, "epochs must be an integer >= 0 and at most 1,000,000 or 'auto', got -1"),
        ({"data": "no/such/folder"}, "does not exist"),
        ({"data": "digits-lt", "resume": "auto"}, "needs --out"),
        ({"data": "digits-lt", "loggers": ["tensorbord"]}, "did you mean tensorboard?"),
    ],
)
def test_mistakes_are_named_as_the_command_names_them(
    arguments: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LongtailError) as caught:
        longtail.train(**arguments, show=False)
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_taken(digits_run: Path) -> None:
    with pytest.raises(UsageError, match="already exists and is not empty"):
        longtail.train("digits-lt:10", out=digits_run, show=False)


def test_check_compare_and_adjust_are_there(digits_run: Path, idle_run: Path, tmp_path: Path) -> None:
    found = longtail.check("digits-lt:10")
    assert repr(found) == "<CheckReport digits-lt:10: 486 training images of 10 classes, 0 problems>"
    with pytest.raises(LongtailError, match="does not exist"):
        longtail.check(tmp_path / "nowhere")
    comparison = longtail.compare(load_run(digits_run), idle_run)
    assert comparison.baseline == "digits-1"
    assert list(comparison.setting_differences()) == ["optim.lr", "epochs"]
    shutil.copytree(digits_run, tmp_path / "run")
    before = load_run(tmp_path / "run").evaluation.ece.value
    adjusted = longtail.adjust(tmp_path / "run", temperature="auto")
    assert adjusted.decision.temperature != 1
    assert load_run(tmp_path / "run").evaluation.ece.value < before
    for shown in (repr(load_run(digits_run)), repr(comparison), repr(adjusted.decision), repr(comparison.evaluations)):
        assert len(shown) < 1500
    assert repr(load_run(digits_run)).startswith(f"<Run {digits_run}: balanced ")
