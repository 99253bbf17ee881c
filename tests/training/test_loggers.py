import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from longtail._errors import UsageError
from longtail.training.callback import Callback
from longtail.training.loggers import add_loggers, check_loggers

ROW = {"train/loss": 2.0, "test/accuracy_many": 0.9, "test/accuracy_medium": 0.5, "test/accuracy_few": 0.25}


def curve(folder: Path, name: str) -> dict[int, float]:
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {event.step: event.value for event in events.Scalars(name)}


class Noted(Callback):
    def __init__(self) -> None:
        self.told: list[str] = []

    def say(self, message: str) -> None:
        self.told.append(message)

    def epoch(self, row: Mapping[str, float | None]) -> None:
        self.told.append(f"epoch {row['epoch']}")


def test_tensorboard_shows_many_medium_and_few(tmp_path: Path) -> None:
    callback = add_loggers(Callback(), ["tensorboard"], tmp_path)
    callback.start(epochs=3, steps=5, epoch=0)
    callback.epoch({"epoch": 1, "train/loss": 3.0})
    callback.epoch({"epoch": 2, **ROW, "test/accuracy_many": None})
    callback.epoch({"epoch": 3, **ROW})
    callback.close()
    assert curve(tmp_path, "test/accuracy_few") == {2: 0.25, 3: 0.25}
    assert curve(tmp_path, "test/accuracy_many") == {3: pytest.approx(0.9)}
    assert curve(tmp_path, "train/loss") == {1: 3.0, 2: 2.0, 3: 2.0}


def test_a_resumed_run_goes_on_in_the_same_curve(tmp_path: Path) -> None:
    for first, loss in ((0, 5.0), (1, 1.0)):
        callback = add_loggers(Callback(), ["tensorboard"], tmp_path)
        callback.start(epochs=3, steps=5, epoch=first)
        for epoch in range(first + 1, 4):
            callback.epoch({"epoch": epoch, "train/loss": loss})
        callback.close()
    assert curve(tmp_path, "train/loss") == {1: 5.0, 2: 1.0, 3: 1.0}


def test_the_runs_own_watcher_is_told_too(tmp_path: Path) -> None:
    noted = Noted()
    callback = add_loggers(noted, ["tensorboard"], tmp_path)
    callback.say("hello")
    callback.start(epochs=1, steps=1, epoch=0)
    callback.step(epoch=0, batch=1, loss=1.0, lr=0.1, images=1)
    callback.epoch({"epoch": 1})
    callback.results({"balanced": 0.5})
    callback.close()
    assert noted.told == ["hello", "epoch 1"]
    assert add_loggers(noted, ["csv"], tmp_path) is noted


def test_a_logger_that_does_not_exist() -> None:
    with pytest.raises(UsageError, match=r"there is no logger 'tensorbord'\ndid you mean tensorboard\?"):
        check_loggers(["tensorbord"])


def test_tensorboard_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(UsageError, match="TensorBoard is not installed") as caught:
        check_loggers(["tensorboard"])
    assert caught.value.fix == "pip install 'longtail[tensorboard]'"


def test_a_place_that_is_gone_ends_no_training(tmp_path: Path) -> None:
    noted = Noted()
    callback = add_loggers(noted, ["tensorboard"], tmp_path)
    callback.start(epochs=3, steps=5, epoch=0)
    callback.epoch({"epoch": 1, "train/loss": 3.0})
    refused: Any = "no number"
    for epoch in (2, 3):
        callback.epoch({"epoch": epoch, "train/loss": refused})
    callback.results({"balanced": 0.5})
    callback.close()
    (lost,) = [line for line in noted.told if line.startswith("TensorBoard gets no more numbers (")]
    assert lost.endswith("metrics.csv has all of them")


def records(folder: Path) -> list[dict[str, Any]]:
    """The records of the one offline run in `folder`, by wandb's own reader."""
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(file)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


# MLflow's client brings some thirty packages, so the development install leaves them out.
LEFT_OUT = "not in the development install for its many dependencies: pip install 'longtail[{}]'"


def test_mlflow_goes_on_in_the_same_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracking = pytest.importorskip("mlflow.tracking", reason=LEFT_OUT.format("mlflow"))
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    (tmp_path / "run").mkdir()
    for first, loss in ((0, 5.0), (2, 1.0)):
        callback = add_loggers(Callback(), ["mlflow"], tmp_path / "run")
        callback.start(epochs=3, steps=5, epoch=first)
        for epoch in range(first + 1, first + 3):
            callback.epoch({"epoch": epoch, "train/loss": loss, "test/accuracy_few": None})
        callback.close()
    client = tracking.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("longtail").experiment_id])
    assert run.info.run_name == "run"
    assert run.info.status == "KILLED"
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert {found.step: found.value for found in history} == {1: 5.0, 2: 5.0, 3: 1.0, 4: 1.0}
    assert "test/accuracy_few" not in run.data.metrics


def test_wandb_keeps_offline_what_can_be_sent_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    (tmp_path / "config.yaml").write_text("epochs: 2\noptim: {lr: 0.1}\n", encoding="utf-8")
    noted = Noted()
    callback = add_loggers(noted, ["wandb"], tmp_path)
    callback.start(epochs=2, steps=5, epoch=0)
    callback.epoch({"epoch": 1, "train/loss": 2.5, "test/accuracy_few": None})
    callback.epoch({"epoch": 2, "train/loss": 1.5})
    callback.results({"balanced": 0.75, "few": None})
    callback.close()
    found = records(tmp_path)
    logged = [record["history"]["item"] for record in found if record["type"] == "history"]
    numbers = [{name: value for name, value in item.items() if name[0] != "_"} for item in logged]
    assert numbers == [{"train/loss": 2.5}, {"train/loss": 1.5, "final/balanced": 0.75}]
    assert [item["_step"] for item in logged] == [1, 2]
    (run,) = [record["run"] for record in found if record["type"] == "run"]
    assert (run["project"], run["display_name"]) == ("longtail", tmp_path.name)
    assert run["run_id"] == (tmp_path / "wandb_run").read_text(encoding="utf-8").strip()
    assert {"epochs": 2, "optim.lr": 0.1}.items() <= run["config"]["update"].items()
    assert [record["exit"].get("exit_code", 0) for record in found if record["type"] == "exit"] == [0]
    (place,) = tmp_path.glob("wandb/offline-run-*")
    assert noted.told == [f"wandb    {place}", "epoch 1", "epoch 2"]


def test_wandb_goes_on_with_the_same_run_after_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    ids = []
    for first in (0, 1):
        shutil.rmtree(tmp_path / "wandb", ignore_errors=True)  # sent by wandb sync
        callback = add_loggers(Callback(), ["wandb"], tmp_path)
        callback.start(epochs=2, steps=5, epoch=first)
        callback.epoch({"epoch": first + 1, "train/loss": 1.0})
        callback.close()
        found = records(tmp_path)
        ids += [record["run"]["run_id"] for record in found if record["type"] == "run"]
        (item,) = [record["history"]["item"] for record in found if record["type"] == "history"]
        assert (item["_step"], item["train/loss"]) == (first + 1, 1.0)
        assert [record["exit"]["exit_code"] for record in found if record["type"] == "exit"] == [1]
    assert ids[0] == ids[1]


def test_wandb_without_a_key_is_refused_at_once(tmp_path: Path) -> None:
    code = "from longtail.training.loggers import check_loggers; check_loggers(['wandb'])"
    asked = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=asked | {"HOME": str(tmp_path), "NETRC": str(tmp_path / "none")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Weights & Biases has no key for its server" in found.stderr
    assert "WANDB_MODE=offline" in found.stderr
