import re
import time

import pytest

from longtail.cli.screen import Screen, Status

TURNS = "[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]"


def test_a_bar_that_is_full_still_turns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Screen("checking birds") as screen:
        screen.advance(10, 10)
        time.sleep(0.3)
        capsys.readouterr()
        time.sleep(1)  # a bar is drawn ten times a second
        said = capsys.readouterr().err
    assert "10 images" in said
    assert len(set(re.findall(TURNS, said))) > 1


def test_a_status_shows_its_first_step_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Status("adjusting a"):
        pass
    assert capsys.readouterr().err == "adjusting a\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Status("adjusting a"):
        time.sleep(1)
    said = capsys.readouterr().err
    assert "adjusting a" in said
    assert len(set(re.findall(TURNS, said))) > 1
