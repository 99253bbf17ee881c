import contextlib
import re
import signal
import time

import pytest
import rich.progress  # noqa: F401  imported under a test's clock, it would keep that clock for all later tests

from longtail.class_counts import GROUPS
from longtail.training.stop_request import StoppedError, StopRequest
from longtail.training.training_screen import TrainingScreen


def steps(screen: TrainingScreen, count: int, *, first: int = 1) -> None:
    for batch in range(first, first + count):
        screen.step(epoch=0, batch=batch, loss=1.0, lr=0.1, images=8)


def test_a_long_training_without_an_accelerator_is_told_after_some_steps(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 100_000, 60))  # a minute passes between any two looks at it
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    screen = TrainingScreen()
    screen.start(epochs=100, steps=50, epoch=0)
    steps(screen, 20)
    said = " ".join(capsys.readouterr().err.split())
    assert "no accelerator: at the speed of the first 2 steps this takes" in said
    assert "--epochs 1 would take about 30 minutes" in said


def test_a_short_training_is_not_commented_upon(capsys: pytest.CaptureFixture[str]) -> None:
    screen = TrainingScreen()
    screen.start(epochs=1, steps=30, epoch=0)
    steps(screen, 30)
    assert "accelerator" not in capsys.readouterr().err


def test_an_epoch_is_one_line_with_the_groups(capsys: pytest.CaptureFixture[str]) -> None:
    screen = TrainingScreen()
    screen.start(epochs=2, steps=1, epoch=0)
    screen.epoch({"epoch": 1, "train/loss": 1.5, "val/accuracy": 0.5, "val/balanced": 0.4, "val/accuracy_few": None})
    assert "epoch 1/2  loss 1.500  val: all 50.0% balanced 40.0%" in capsys.readouterr().err


def test_a_bar_of_80_columns_keeps_the_epoch_and_the_time_that_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    accuracies = {f"val/{name}": 0.5 for name in ("accuracy", "balanced", *map("accuracy_{}".format, GROUPS))}
    with TrainingScreen() as screen:
        screen.start(epochs=100, steps=50, epoch=0)
        for batch in range(1, 6):
            time.sleep(0.12)  # the bar is drawn ten times a second
            steps(screen, 1, first=batch)
        screen.epoch({"epoch": 1, "train/loss": 1.5, **accuracies})
        capsys.readouterr()
        steps(screen, 1, first=6)
        time.sleep(0.5)
        said = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
    drawn = re.split(r"[\r\n]", said)[-1].rstrip()
    assert re.search(r"^. epoch 1/100 ━+ \d:\d\d:\d\d loss 1.000 all 50.0% balanced 50.0%", drawn)
    assert drawn.endswith("…")
    assert len(drawn) < 79  # a terminal writes ^C at its end


def test_what_starts_a_training_is_not_counted_as_a_step(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    screen = TrainingScreen()
    screen.start(epochs=1, steps=100, epoch=0)
    clock[0] += 30  # workers start
    for batch in range(1, 6):
        steps(screen, 1, first=batch)
        clock[0] += 1
    assert "training takes about 95 s" in capsys.readouterr().err


def test_lines_are_folded_between_words_on_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "still improving on validation at the end: longtail train --resume 'runs/a b' --epochs 60"
    TrainingScreen().say(said)
    assert capsys.readouterr().err == said + "\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "30")
    TrainingScreen().say(said)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "still improving on validation",
        "  at the end:",
        "  longtail train --resume 'runs/a b' --epochs 60",
    ]


def test_a_terminal_shows_a_word_until_a_bar_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with TrainingScreen() as screen:
        screen.wait("looking at [birds]")
        screen.progress("embedding", 3, 10)
        screen.progress("embedding", 10, 10)
    said = capsys.readouterr().err
    assert said.index("looking at [birds]") < said.index("embedding") < said.index("working")


def test_off_a_terminal_progress_is_a_line_at_the_start_now_and_then_and_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    with TrainingScreen() as screen:
        screen.wait("looking at birds")
        screen.wait("looking at birds")
        for done in range(0, 3001, 500):
            screen.progress("embedding", done, 3000)
            clock[0] += 4
        screen.progress("testing", 16, 16)
    assert capsys.readouterr().err.splitlines() == [
        "looking at birds",
        "embedding 0 of 3,000",
        "embedding 1,500 of 3,000",
        "embedding 3,000 of 3,000 in 24 s",
        "testing 16 of 16",
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_the_time_that_is_left_is_a_line_within_seconds(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    clock = iter(range(100_000))  # a second passes between any two looks at it
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    with TrainingScreen() as screen:
        screen.start(epochs=10, steps=50, epoch=0)
        steps(screen, 30)
    assert capsys.readouterr().err.count("training takes about") == 1


@pytest.mark.parametrize("terminal", [True, False])
def test_the_wish_to_stop_is_answered_from_within_its_handler(
    terminal: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    with TrainingScreen() as screen:
        screen.start(epochs=10, steps=50, epoch=0)
        with contextlib.suppress(StoppedError), StopRequest(None, screen.stopping) as request:
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.3)  # the bar is drawn ten times a second
            said = capfd.readouterr().err
            raise StoppedError(request.reason, "stopped")
    assert "stopping" in said
    assert "Ctrl-C again stops at once" in said
