from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from longtail._errors import DataError
from longtail.training import train
from longtail.training.checkpoint import load_checkpoint, save_checkpoint
from tests.support.tiny_runs import Interrupt, config, fail


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was cut off after its second step."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    with pytest.raises(ConnectionResetError):
        train(config(checkpoint_steps=1), out=folder, callback=Interrupt(3, fail))
    return folder


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], object]:
    *groups, last = path.split(".")

    def change(state: dict[str, Any]) -> None:
        for group in groups:
            state = state[group]
        state[last] = value

    return change


ABSURD: dict[str, Callable[[dict[str, Any]], object]] = {
    "progress.batch is 1000000000 of": _set("progress.batch", 10**9),
    "progress.step is 99999": _set("progress.step", 99999),
    "progress.epoch is 3 of 2": _set("progress.epoch", 3),
    "progress.epoch is -1": _set("progress.epoch", -1),
    "progress.batch is True": _set("progress.batch", True),
    "progress.batch is 'two'": _set("progress.batch", "two"),
    "progress.sums is": _set("progress.sums", {"loss": float("nan")}),
    "progress.rows is": _set("progress.rows", [1]),
    "progress.records is": _set("progress.records", "none"),
    "progress must have": lambda state: state["progress"].pop("step"),
    "microbatches is -1": _set("microbatches", -1),
    "microbatches is 4096 for 128 images": _set("microbatches", 4096),
    "microbatches is a tensor": _set("microbatches", torch.zeros(2)),
    "it has no optimizer": lambda state: state.pop("optimizer"),
    "method is []": _set("method", []),
    "config.model is None": _set("config", {}),
    "config.epochs is ''": _set("config.epochs", ""),
    "config.optim.lr is None": lambda state: state["config"]["optim"].pop("lr"),
    "momentum must be": _set("config.optim.momentum", "x"),
    "batch_size must be": _set("config.batch_size", torch.zeros(2)),
    "unknown setting": _set("config.batches", 3),
    "classes is": _set("classes", list(range(10))),
    "Unexpected key": _set("method.extra", torch.zeros(1)),
    "param_groups": _set("optimizer", {"state": 3}),
}


@pytest.mark.parametrize("message", ABSURD)
def test_a_state_that_no_training_can_be_in_is_refused_in_one_line(stopped: Path, tmp_path: Path, message: str) -> None:
    state, _ = load_checkpoint(stopped)
    ABSURD[message](state)
    run = tmp_path / "run"
    run.mkdir()
    for name in ("config.yaml", "split.csv"):
        (run / name).write_bytes((stopped / name).read_bytes())
    save_checkpoint(run, state)
    with pytest.raises(DataError) as caught:
        train(config(checkpoint_steps=1), out=run, resume=True)
    assert "no training can have written" in str(caught.value)
    assert message.partition(" is ")[0].split(".")[-1] in str(caught.value)
    assert "\n" not in str(caught.value)
