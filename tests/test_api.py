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
from longtail.cli.tune import tune as tune_command
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
    flags = inspect.signature(command).parameters.keys() - {"set_", "dry_run"}
    assert flags == inspect.signature(longtail.train).parameters.keys() - {"settings", "show"}
    flags = inspect.signature(tune_command).parameters.keys() - {"set_"}
    assert flags == inspect.signature(longtail.tune).parameters.keys() - {"settings", "show"}


def test_several_seeds_are_a_group_with_mean_and_spread(tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"method": "erm", "model": "resnet8", "epochs": 1, "seed": 3, "show": False}
    group = longtail.train("digits-lt:10", seeds=2, out=tmp_path / "group", **chosen)
    scores = [run.metrics["balanced"] or 0.0 for run in group.runs]
    assert [run.path for run in group.runs] == [tmp_path / "group/seed-3", tmp_path / "group/seed-4"]
    assert group.summary.spreads["balanced"].mean == pytest.approx(sum(scores) / 2)
    assert repr(group).endswith("over 2 seeds>")
    alone = longtail.train("digits-lt:10", out=tmp_path / "alone", **chosen)
    assert alone.metrics == group.runs[0].metrics
    again = longtail.train("digits-lt:10", seeds=2, out=tmp_path / "group", resume="auto", **chosen)
    assert [run.metrics for run in again.runs] == [run.metrics for run in group.runs]


def test_a_study_from_python_goes_on_like_that_of_the_command(tmp_path: Path) -> None:
    chosen: dict[str, Any] = {
        "model": "resnet8",
        "from_scratch": True,
        "epochs": 1,
        "out": tmp_path / "s",
        "show": False,
    }
    found = longtail.tune("digits-lt:10", method="erm", trials=1, **chosen)
    assert found.run is not None
    assert found.run.path == tmp_path / "s/trial-0"
    assert found.best.params["method"] == "erm"
    assert repr(found).startswith(f"<Tuned {tmp_path / 's'}: trial 0 of 1, ")
    flags = ["--model", "resnet8", "--from-scratch", "--epochs", "1", "--method", "erm", "--trials", "1"]
    assert run(["tune", "digits-lt:10", *flags, "--out", str(tmp_path / "s")]) == 0
    assert len((tmp_path / "s/trials.csv").read_text().splitlines()) == 3


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
