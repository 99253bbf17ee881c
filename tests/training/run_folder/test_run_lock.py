import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from longtail._errors import DataError, UsageError
from longtail.training import train
from longtail.training.run_folder.read import open_run
from longtail.training.run_folder.run_lock import lock_holder, run_lock
from tests.support.tiny_runs import Interrupt, config

HOLD = """
import os, sys, time
from pathlib import Path
from longtail.training.run_folder.run_lock import run_lock
with run_lock(Path(sys.argv[1])):
    if os.fork() == 0:
        time.sleep(30)  # as a worker that outlives its parent
        os._exit(0)
    print("held", flush=True)
    time.sleep(30)
"""


def test_a_second_process_is_refused_and_told_who_holds_the_folder(tmp_path: Path) -> None:
    with run_lock(tmp_path):
        with pytest.raises(UsageError, match=f"is in use: process {os.getpid()} on .*, since 20"), run_lock(tmp_path):
            pass
        assert lock_holder(tmp_path) is not None
    assert lock_holder(tmp_path) is None
    assert not (tmp_path / ".lock").exists()
    with run_lock(tmp_path):
        pass


def test_a_lock_ends_with_its_process_also_when_that_is_killed_and_leaves_workers(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, process_group=0)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"held\n"
        found = lock_holder(tmp_path)
        assert found is not None
        assert found.pid == holder.pid
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        time.sleep(0.1)
        with run_lock(tmp_path):
            pass
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.wait()
        holder.stdout.close()


def test_a_run_that_is_under_way_is_locked_and_called_live(tmp_path: Path) -> None:
    out = tmp_path / "run"
    said: list[str] = []

    def look() -> None:
        with pytest.raises(UsageError, match="is in use") as second:
            train(config(), out=out, resume=True)
        with pytest.raises(DataError, match="is not finished") as report:
            open_run(out)
        said.extend((second.value.what, report.value.why))

    train(config(epochs=1), out=out, callback=Interrupt(2, look))
    assert f"process {os.getpid()}" in said[0]
    assert said[1].startswith(f"it is still running: process {os.getpid()} on ")
    assert lock_holder(out) is None
