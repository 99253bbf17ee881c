import sys
from collections.abc import Mapping
from pathlib import Path

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
    callback.finish()
    assert curve(tmp_path, "test/accuracy_few") == {2: 0.25, 3: 0.25}
    assert curve(tmp_path, "test/accuracy_many") == {3: pytest.approx(0.9)}
    assert curve(tmp_path, "train/loss") == {1: 3.0, 2: 2.0, 3: 2.0}


def test_a_resumed_run_goes_on_in_the_same_curve(tmp_path: Path) -> None:
    for first, loss in ((0, 5.0), (1, 1.0)):
        callback = add_loggers(Callback(), ["tensorboard"], tmp_path)
        callback.start(epochs=3, steps=5, epoch=first)
        for epoch in range(first + 1, 4):
            callback.epoch({"epoch": epoch, "train/loss": loss})
        callback.finish()
    assert curve(tmp_path, "train/loss") == {1: 5.0, 2: 1.0, 3: 1.0}


def test_the_runs_own_watcher_is_told_too(tmp_path: Path) -> None:
    noted = Noted()
    callback = add_loggers(noted, ["tensorboard"], tmp_path)
    callback.say("hello")
    callback.start(epochs=1, steps=1, epoch=0)
    callback.step(epoch=0, batch=1, loss=1.0, lr=0.1, images=1)
    callback.epoch({"epoch": 1})
    callback.finish()
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
        callback.finish()
    client = tracking.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("longtail").experiment_id])
    assert run.info.run_name == "run"
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert {found.step: found.value for found in history} == {1: 5.0, 2: 5.0, 3: 1.0, 4: 1.0}
    assert "test/accuracy_few" not in run.data.metrics
