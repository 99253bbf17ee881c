"""What a run promises, on tiny runs in this process."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from benchmarks.robustness.kill_and_resume import differences
from longtail._errors import LongtailError, MemoryFullError
from longtail.data.views import Batch
from longtail.evaluation import read_metrics
from longtail.methods import METHODS, Method, MethodOutput
from longtail.training import load_run, train
from longtail.training.build import build_run, training_loader
from longtail.training.checkpoint import load_checkpoint
from longtail.training.microbatches import write_note
from longtail.training.stop_request import DivergedError, StoppedError
from tests.support.tiny_runs import Interrupt, config, fail

FILES = {
    "SHA256SUMS",
    "config.yaml",
    "env.json",
    "split.csv",
    "log.txt",
    "metrics.csv",
    "last.ckpt",
    "model",
    "predictions.csv",
    "report.html",
}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "reference"
    train(config(), out=folder)
    return folder


def test_a_run_leaves_exactly_its_files(reference: Path) -> None:
    assert {path.name for path in reference.iterdir()} == FILES
    assert {path.name for path in (reference / "model").iterdir()} == {
        "model.safetensors",
        "config.json",
        "diagnostics.json",
    }


def test_the_numbers_of_a_run_are_those_of_its_predictions(reference: Path) -> None:
    run = load_run(reference)
    last = read_metrics(reference / "metrics.csv")[-1]
    assert run.metrics["top1"] == pytest.approx(last["test/accuracy"])
    assert run.metrics["balanced"] == pytest.approx(last["test/balanced"])
    assert run.metrics["few"] == pytest.approx(last["test/accuracy_few"])


def test_the_same_settings_give_the_same_bits(reference: Path, tmp_path: Path) -> None:
    train(config(), out=tmp_path / "again")
    assert differences(reference, tmp_path / "again") == []


@pytest.mark.parametrize(("steps", "every"), [(1, 1), (2, 1), (3, 1), (4, None), (5, 2)])
def test_a_run_that_was_cut_off_anywhere_goes_on_to_the_same_bits(
    reference: Path, tmp_path: Path, steps: int, every: int | None
) -> None:
    out = tmp_path / "run"
    with pytest.raises(ConnectionResetError):
        train(config(checkpoint_steps=every), out=out, callback=Interrupt(steps, fail))
    train(config(), out=out, resume=True)
    assert differences(reference, out) == []


def test_it_goes_on_to_the_same_bits_with_other_workers(reference: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(ConnectionResetError):
        train(config(checkpoint_steps=1), out=out, callback=Interrupt(2, fail))
    train(config(workers=1), out=out, resume=True)
    assert differences(reference, out) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_between_steps_saves_and_says_how_to_go_on(
    reference: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    out = tmp_path / "run"
    before = signal.getsignal(number)
    with pytest.raises(StoppedError, match="longtail train --resume") as caught:
        train(config(), out=out, callback=Interrupt(2, lambda: signal.raise_signal(number)))
    assert caught.value.exit_code == code
    assert signal.getsignal(number) is before
    train(config(), out=out, resume=True)
    assert differences(reference, out) == []


def test_a_run_that_the_time_limit_ended_goes_on_to_the_same_bits(reference: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(config(max_time=0.0), out=out)
    train(config(), out=out, resume=True)
    assert differences(reference, out) == []


def test_a_bug_leaves_its_traceback_in_the_log(tmp_path: Path) -> None:
    with pytest.raises(ConnectionResetError):
        train(config(), out=tmp_path / "run", callback=Interrupt(1, fail))
    assert "ConnectionResetError: as if the power went" in (tmp_path / "run" / "log.txt").read_text()


def test_a_folder_with_a_run_is_not_written_over(reference: Path) -> None:
    with pytest.raises(LongtailError, match="already exists and is not empty"):
        train(config(), out=reference)


def test_a_run_without_a_checkpoint_yet_starts_anew(reference: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(ConnectionResetError):
        train(config(checkpoint_minutes=99.0), out=out, callback=Interrupt(1, fail))
    assert not (out / "last.ckpt").exists()
    train(config(), out=out, resume=True)
    assert differences(reference, out) == []


class Faulty(Method):
    """Plain training with a fault at one step."""

    fault: Any = None
    steps = 0

    def forward(self, *batches: Batch) -> MethodOutput:
        (batch,) = batches
        type(self).steps += 1
        logits = self.model(self.views_of(batch)[0])
        loss = torch.nn.functional.cross_entropy(logits, batch.target)
        if type(self).fault is not None:
            loss = type(self).fault(type(self).steps, batch, loss)
        return MethodOutput(loss, logits.detach(), {"classification": loss.detach()})


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> type[Faulty]:
    monkeypatch.setitem(METHODS._units, "faulty", Faulty)
    monkeypatch.setattr(Faulty, "steps", 0)
    return Faulty


def test_a_loss_that_is_no_number_stops_before_the_weights_change(
    faulty: type[Faulty], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faulty, "fault", staticmethod(lambda step, _, loss: loss * float("nan") if step == 3 else loss))
    out = tmp_path / "run"
    with pytest.raises(
        DivergedError, match=r"the loss is nan in epoch 1, step 3, learning rate .*\n.*stays in"
    ) as caught:
        train(config(method={"name": "faulty"}, checkpoint_steps=1), out=out)
    assert caught.value.exit_code == 5
    state = torch.load(out / "last.ckpt", weights_only=True)
    assert state["progress"]["step"] == 2
    assert all(torch.isfinite(tensor).all() for tensor in state["method"].values())
    assert "the loss is nan" in (out / "log.txt").read_text()


def test_a_loss_that_is_no_number_in_the_first_step_says_that_there_is_no_checkpoint(
    faulty: type[Faulty], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faulty, "fault", staticmethod(lambda _, __, loss: loss * float("nan")))
    with pytest.raises(DivergedError, match=r"there is no checkpoint yet\ntry a smaller learning rate: --lr 0\.017"):
        train(config(method={"name": "faulty"}), out=tmp_path / "run")


def test_a_gradient_that_is_no_number_stops_before_the_weights_change(
    faulty: type[Faulty], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The root of 0 is 0 and its slope is not finite.
    root = staticmethod(lambda step, _, loss: loss + (0 * loss).sqrt() if step == 3 else loss)
    monkeypatch.setattr(faulty, "fault", root)
    with pytest.raises(DivergedError, match="the norm of the gradient is nan in epoch 1, step 3"):
        train(config(method={"name": "faulty"}, checkpoint_steps=1), out=tmp_path / "run")
    assert load_checkpoint(tmp_path / "run")[0]["progress"]["step"] == 2


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize("factor", [float("nan"), 1e12])
@pytest.mark.parametrize("last", [False, True])
def test_weights_that_explode_are_not_kept_and_the_run_goes_on_with_another_learning_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float, last: bool
) -> None:
    settings: dict[str, Any] = {"method": {"name": "faulty"}, "checkpoint_steps": 1}
    bad = 2 * len(training_loader(build_run(config(**settings)))) if last else 3

    def spoil(self: Faulty) -> None:
        if type(self).steps == bad:
            with torch.no_grad():
                next(self.parameters()).mul_(factor)

    out = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(Faulty, "after_step", spoil)
        with pytest.raises(DivergedError, match=r"the weights explode: .* reaches") as caught:
            train(config(**settings), out=out)
    assert caught.value.exit_code == 5
    assert f"longtail train --resume {out} --lr 0.017" in caught.value.fix
    assert load_checkpoint(out)[0]["progress"]["step"] == bad - 1
    train(config(**settings, optim={"lr": 0.017}), out=out, resume=True)
    assert "lr: 0.017" in (out / "config.yaml").read_text()


def test_a_batch_that_does_not_fit_is_cut_and_accumulated(
    faulty: type[Faulty], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(_: int, batch: Any, loss: torch.Tensor) -> torch.Tensor:
        if len(batch.target) > 40:
            raise torch.OutOfMemoryError("simulated")
        return loss

    monkeypatch.setattr(faulty, "fault", staticmethod(too_large))
    callback = Interrupt(0, None)
    run = train(config(method={"name": "faulty"}, epochs=1), out=tmp_path / "run", callback=callback)
    assert "each batch is now cut into 2 micro-batches\n" in callback.said
    assert "each batch is now cut into 4 micro-batches\n" in callback.said
    assert run.metrics["top1"] is not None


def test_a_batch_that_never_fits_ends_the_run(
    faulty: type[Faulty], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> torch.Tensor:
        raise MemoryError

    monkeypatch.setattr(faulty, "fault", staticmethod(never))
    with pytest.raises(
        MemoryFullError, match=r"in 8 micro-batches\n.*\nuse --batch-size 64, a smaller --image-size"
    ) as caught:
        train(config(method={"name": "faulty"}), out=tmp_path / "run")
    assert caught.value.exit_code == 4


def test_a_resumed_run_takes_the_microbatches_that_a_rank_noted(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(ConnectionResetError):
        train(config(checkpoint_steps=1), out=out, callback=Interrupt(2, fail))
    write_note(out, 1, 2)
    train(config(), out=out, resume=True)
    assert torch.load(out / "last.ckpt", weights_only=True)["microbatches"] == 2
    assert {path.name for path in out.iterdir()} == FILES


def test_accumulation_gives_the_gradient_of_the_whole_batch(tmp_path: Path) -> None:
    # Without batch norm, whose statistics depend on the pieces: a plain timm network of layer norms.
    settings = {
        "model": {"name": "test_convnext"},
        "image_size": 32,
        "epochs": 1,
        "batch_size": 8,
        "data": "digits-lt:40",
    }
    settings |= {"optim": {"accumulate": 1, "lr": 0.01}}
    whole = train(config(**settings), out=tmp_path / "whole")
    pieces = train(config(**settings | {"optim": {"accumulate": 3, "lr": 0.01}}), out=tmp_path / "pieces")
    a, b = (read_metrics(run.path / "metrics.csv")[-1]["train/loss"] for run in (whole, pieces))
    assert a == pytest.approx(b, rel=1e-4)


def test_the_average_of_the_weights_is_what_is_evaluated(tmp_path: Path, reference: Path) -> None:
    train(config(optim={"ema": 0.5}), out=tmp_path / "run")
    averaged, last = (load_file(path / "model" / "model.safetensors") for path in (tmp_path / "run", reference))
    assert averaged.keys() == last.keys()
    assert not torch.equal(averaged["conv.weight"], last["conv.weight"])
    state = torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)
    torch.testing.assert_close(
        state["method"]["model.conv.weight"], last["conv.weight"].to(memory_format=torch.channels_last)
    )


@pytest.mark.parametrize("changes", [{"precision": "bf16"}, {"optim": {"name": "adamw", "lr": 1e-3, "clip_norm": 1.0}}])
def test_other_ways_to_train_learn(changes: dict[str, Any], tmp_path: Path) -> None:
    run = train(config(**changes, epochs=3), out=tmp_path / "run")
    losses = [row["train/loss"] for row in read_metrics(run.path / "metrics.csv")]
    assert losses[-1] is not None
    assert losses[0] is not None
    assert losses[-1] < losses[0]
    assert all(np.isfinite(value) for value in losses if value is not None)
