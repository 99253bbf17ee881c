"""A run that was stopped becomes a model, keeps its best epoch, ends early, and goes on with more epochs."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from longtail._errors import DataError, UsageError
from longtail.evaluation import read_metrics
from longtail.training import Callback, finish_run, load_run, train
from longtail.training.best_epoch import BestEpoch, best_epoch, describe_kept, has_stopped_rising
from longtail.training.checkpoint import read_checkpoint
from longtail.training.run_folder.model import load_model
from longtail.training.run_folder.read import open_run
from longtail.training.run_folder.report import build_report
from longtail.training.run_folder.run_lock import run_lock
from longtail.training.settings import resolve_settings
from longtail.training.stop_request import StoppedError
from tests.support.tiny_runs import Interrupt, config


def stop() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def stopped(folder: Path, *, steps: int, **changes: Any) -> None:
    with pytest.raises(StoppedError, match="longtail finish"):
        train(config(**changes), out=folder, callback=Interrupt(steps, stop))


def test_a_stopped_run_becomes_the_model_of_its_checkpoint(tmp_path: Path) -> None:
    stopped(tmp_path, steps=5)
    with pytest.raises(DataError, match="not finished"):
        load_run(tmp_path)
    lines: list[str] = []

    class Heard(Callback):
        def say(self, message: str) -> None:
            lines.append(message)

    finish_run(tmp_path, callback=Heard())
    assert "time     that of the predictions: nothing more is trained" in lines
    weights = load_model(tmp_path / "model").model.state_dict()
    kept = read_checkpoint(tmp_path / "last.ckpt")["method"]
    assert all(torch.equal(value, kept[f"model.{name}"]) for name, value in weights.items())
    assert len(open_run(tmp_path).predictions().target) > 0
    assert "1 of 2: the run was stopped" in build_report(tmp_path).selection


def test_what_was_finished_early_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    train(config(), out=tmp_path / "whole")
    stopped(tmp_path / "cut", steps=5)
    finish_run(tmp_path / "cut")
    train(config(), out=tmp_path / "cut", resume=True)
    files = ("predictions.csv", "metrics.csv", "model/model.safetensors", "config.yaml")
    assert all((tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes() for name in files)


def test_a_run_whose_time_is_up_leaves_a_model_and_goes_on(tmp_path: Path) -> None:
    run = train(config(max_time=0.0), out=tmp_path)
    assert run.metrics["balanced"] is not None
    assert read_checkpoint(tmp_path / "last.ckpt")["progress"]["step"] == 1
    train(config(), out=tmp_path, resume=True)
    assert read_metrics(tmp_path / "metrics.csv")[-1]["epoch"] == 2


def test_finish_refuses_runs_that_are_finished_live_or_empty(digits_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is finished"):
        finish_run(digits_run)
    stopped(tmp_path / "live", steps=2)
    with run_lock(tmp_path / "live"), pytest.raises(UsageError, match="is in use: process"):
        finish_run(tmp_path / "live")
    with pytest.raises(ConnectionResetError):
        train(config(), out=tmp_path / "empty", callback=Interrupt(1, _fail))
    with pytest.raises(DataError, match="has no checkpoint"):
        finish_run(tmp_path / "empty")
    with pytest.raises(DataError, match="is not a run"):
        finish_run(tmp_path)


def _fail() -> None:
    raise ConnectionResetError


class Spoil(Callback):
    """Makes the weights useless after an epoch, so that the one before stays the best."""

    def __init__(self, after: int) -> None:
        self.after = after

    def step(self, *, epoch: int, **_: Any) -> None:
        if epoch >= self.after:
            raise ConnectionResetError


@pytest.mark.parametrize("keep", ["last", "best"])
def test_the_weights_that_are_kept_are_those_of_the_rule(keep: str, tmp_path: Path) -> None:
    # After two epochs that learn, one with a learning rate that destroys.
    settings: dict[str, Any] = {"val_fraction": 0.2, "keep": keep, "epochs": 3, "batch_size": 32}
    with pytest.raises(ConnectionResetError):
        train(config(**settings, optim={"clip_norm": 1.0}), out=tmp_path, callback=Spoil(2))
    train(config(**settings, optim={"lr": 30.0, "clip_norm": 1.0}), out=tmp_path, resume=True)
    rows = read_metrics(tmp_path / "metrics.csv")
    best = best_epoch(rows)
    assert best is not None
    assert best.epoch < 3
    row = rows[best.epoch - 1 if keep == "best" else -1]
    found = open_run(tmp_path).predictions("val")
    recalls = [np.mean(found.logits.argmax(1)[found.target == k] == k) for k in np.unique(found.target)]
    assert np.mean(recalls) == pytest.approx(row["val/balanced"])
    if keep == "last":
        finish_run(tmp_path, keep="best")
    kept = load_model(tmp_path / "model").model.state_dict()
    assert all(
        torch.equal(value, kept[name]) for name, value in read_checkpoint(tmp_path / "best.ckpt")["model"].items()
    )
    assert f"epoch {best.epoch} of 3, the best on validation" in build_report(tmp_path).selection


def test_a_training_that_no_longer_rises_ends_early_with_its_best_epoch(tmp_path: Path) -> None:
    said = Interrupt(10**6, stop)
    settings: dict[str, Any] = {"val_fraction": 0.2, "patience": 2, "epochs": 50, "batch_size": 32}
    train(config(**settings, optim={"lr": 1e-9}), out=tmp_path, callback=said)
    rows = read_metrics(tmp_path / "metrics.csv")
    best = best_epoch(rows)
    assert best is not None
    assert len(rows) == best.epoch + 2 < 50
    assert "has not risen for 2 epochs" in said.said
    assert open_run(tmp_path).settings["keep"] == "best"
    # Resumed, it has nothing more to do.
    train(config(**settings, optim={"lr": 1e-9}), out=tmp_path, resume=True)
    assert read_metrics(tmp_path / "metrics.csv") == rows


def test_another_learning_rate_for_a_finished_run_is_said_to_change_nothing(tmp_path: Path) -> None:
    train(config(), out=tmp_path)
    before = (tmp_path / "model" / "model.safetensors").read_bytes()
    said: list[str] = []

    class Listener(Callback):
        def say(self, message: str) -> None:
            said.append(message)

    train(config(optim={"lr": 1e-9}), out=tmp_path, resume=True, callback=Listener())
    assert any("--lr 1e-09 has no effect; --epochs N trains longer" in line for line in said)
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == before


def test_what_asks_for_validation_is_refused_without_it(tmp_path: Path) -> None:
    for setting in ({"patience": 2}, {"keep": "best"}):
        with pytest.raises(UsageError, match="has no validation images"):
            train(config(**setting), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_patience_waits_for_the_last_stage_of_a_method() -> None:
    rows = [{"epoch": float(n), "val/balanced": 0.9 if n == 1 else 0.1} for n in range(1, 11)]
    assert has_stopped_rising(rows, patience=3, last_stage=0.0)
    assert not has_stopped_rising(rows, patience=3, last_stage=8.0)
    assert has_stopped_rising(rows, patience=2, last_stage=8.0)
    assert best_epoch(rows) == BestEpoch(1, 0.9)
    assert describe_kept("last", rows, epochs=10) == "weights of the last epoch"


def test_a_finished_run_goes_on_with_more_epochs_on_their_schedule(tmp_path: Path) -> None:
    train(config(), out=tmp_path)
    longer, folder, _ = resolve_settings({"epochs": 4}, resume=str(tmp_path))
    said = Interrupt(10**6, stop)
    train(longer, out=folder, resume=True, callback=said)
    rows = read_metrics(tmp_path / "metrics.csv")
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]
    assert "4 epochs instead of 2, 2 of them done" in said.said
    # The last steps of 4 epochs, as a run of 4 epochs has them.
    train(config(epochs=4), out=tmp_path / "whole")
    whole = read_metrics(tmp_path / "whole" / "metrics.csv")
    assert [row["lr"] for row in rows[2:]] == pytest.approx([row["lr"] for row in whole[2:]])
    assert open_run(tmp_path).settings["epochs"] == 4
    with pytest.raises(UsageError, match="at least the 4 that"):
        train(resolve_settings({"epochs": 3}, resume=str(tmp_path))[0], out=tmp_path, resume=True)


def test_a_run_in_its_second_stage_is_not_extended_into_the_first(tmp_path: Path) -> None:
    staged = {"name": "decoupled"}
    train(config(method=staged, epochs=5), out=tmp_path)
    with pytest.raises(UsageError, match="is in stage 2 of 2"):
        train(resolve_settings({"epochs": 20}, resume=str(tmp_path))[0], out=tmp_path, resume=True)
