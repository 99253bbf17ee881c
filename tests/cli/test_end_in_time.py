"""Signals to real processes that wait for something that never comes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_signal_ends_a_run_whose_images_never_come(tmp_path: Path, number: signal.Signals, workers: str) -> None:
    busy = tmp_path / "busy"
    command = ["train", "digits-lt:10", "--method", "erm", "--model", "resnet8", "--epochs", "1", "--workers", workers]
    process = start(busy, *command, "--out", str(tmp_path / "run"))
    assert ended(process, busy, number) == 128 + number


def test_a_signal_ends_a_process_that_never_returns_to_python(tmp_path: Path) -> None:
    busy = tmp_path / "busy"
    program = (
        "import ctypes, pathlib, longtail.cli as cli\n"
        "def run(_):\n"
        f"    pathlib.Path({str(busy)!r}).touch()\n"
        "    while True:\n"
        "        ctypes.CDLL(None).sleep(600)\n"
        "cli.run = run\n"
        "cli._terminate = lambda *_: None\n"
        "cli.main()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)
    assert ended(process, busy, signal.SIGTERM) == 128 + signal.SIGTERM


def start(busy: Path, *words: str) -> subprocess.Popen[bytes]:
    program = (
        "import sys, time, pathlib\n"
        "from longtail.data.views import ViewedImages\n"
        "from longtail.cli import main\n"
        f"ViewedImages.__getitem__ = lambda self, key: (pathlib.Path({str(busy)!r}).touch(), time.sleep(600))\n"
        f"sys.argv = ['longtail', *{list(words)!r}]\n"
        "main()\n"
    )
    return subprocess.Popen([sys.executable, "-c", program], env=os.environ | {"OMP_NUM_THREADS": "1"})


def ended(process: subprocess.Popen[bytes], busy: Path, number: signal.Signals) -> int:
    """The exit code of a process that is signalled once it waits; it must end within 10 seconds."""
    deadline = time.monotonic() + 120
    while not busy.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(number)
    try:
        return process.wait(timeout=10)
    finally:
        process.kill()
