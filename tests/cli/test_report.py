import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from longtail.cli import run
from longtail.training.run_folder.run_lock import run_lock

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def runs(digits_run: Path, idle_run: Path, tmp_path: Path) -> Path:
    for source, name in ((digits_run, "a"), (digits_run, "same"), (idle_run, "idle")):
        shutil.copytree(source, tmp_path / "runs" / name)
    return tmp_path / "runs"


def test_one_run_gets_its_page_again(capsys: Capture, digits_run: Path, runs: Path) -> None:
    before = (runs / "a/report.html").read_text()
    (runs / "a/report.html").unlink()
    assert run(["report", str(runs / "a")]) == 0
    assert capsys.readouterr().out == f"report: {runs / 'a/report.html'}\n"
    assert (runs / "a/report.html").read_text() == before.replace(str(digits_run), str(runs / "a")).replace(
        "digits-1", "a"
    )


def test_a_finished_run_that_is_trained_on_is_called_live(capsys: Capture, runs: Path) -> None:
    with run_lock(runs / "a"):
        assert run(["report", str(runs / "a")]) == 0
    assert f"{runs / 'a'} is live: process {os.getpid()} on " in capsys.readouterr().err


def test_several_runs_are_compared_with_the_first(capsys: Capture, runs: Path) -> None:
    assert run(["report", *(str(runs / name) for name in ("a", "same", "idle"))]) == 0
    same, idle, place = capsys.readouterr().out.splitlines()
    assert same == "No difference shown between same and a."
    assert idle.startswith("idle against a: balanced accuracy is ")
    assert place == f"comparison: {runs / 'comparison.html'}"
    assert (runs / "comparison.html").is_file()


def test_the_page_is_opened_when_asked(
    capsys: Capture, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert run(["report", str(runs / "a"), "--out", str(tmp_path / "my page.html"), "--open"]) == 0
    assert opened == [(tmp_path / "my page.html").as_uri()]
    assert "my page.html" in capsys.readouterr().out


def test_a_report_needs_no_torch(runs: Path) -> None:
    script = (
        "import sys\nfrom longtail.cli import run\n"
        f"codes = run(['report', {str(runs / 'a')!r}]), run(['evaluate', {str(runs / 'a')!r}])\n"
        "sys.exit(99 if 'torch' in sys.modules else max(codes))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_runs_that_cannot_be_reported(capsys: Capture, runs: Path) -> None:
    assert run(["report"]) == 2
    assert "RUN is missing" in capsys.readouterr().err
    assert run(["report", str(runs)]) == 3
    assert f"name one of them, such as {runs / 'same'}" in capsys.readouterr().err
    (runs / "same/predictions.csv").unlink()
    assert run(["report", str(runs / "a"), str(runs / "same")]) == 3
    assert f"let it finish: longtail train --resume {runs / 'same'}" in capsys.readouterr().err
