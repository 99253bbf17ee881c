"""What rivals hand back, and the clock that they are measured by."""

import argparse
import csv
import json
import time
from pathlib import Path

import pytest

from benchmarks.studies.folders.rivals.rival import CoreClock, Task, list_images, write_outcome


def test_the_clock_counts_work_and_not_sleep() -> None:
    clock = CoreClock(seconds=1000)
    time.sleep(0.3)
    assert clock.used < 0.2
    start = time.process_time()
    while time.process_time() < start + 0.2:
        pass
    assert clock.used >= 0.2
    assert clock.progress == pytest.approx(clock.used / 1000, rel=0.1)


def test_the_progress_never_exceeds_one() -> None:
    assert CoreClock(seconds=1e-9).progress == 1


def test_an_outcome_has_paths_within_the_folder_and_names_of_classes(tmp_path: Path) -> None:
    for name in ("ash", "oak"):
        for split in ("train", "test"):
            (tmp_path / split / name).mkdir(parents=True)
            (tmp_path / split / name / "1.png").touch()
    task = Task(tmp_path, tmp_path, 0, 1.0, 128, argparse.Namespace())
    files = list_images(tmp_path / "test")
    write_outcome(task, files, ["oak", "oak"], training=0.5, clock=CoreClock(1.0), packages=("torch",), epochs=2)
    with (tmp_path / "predictions.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert task.classes == ["ash", "oak"]
    assert rows[0] == {"path": "test/ash/1.png", "label": "ash", "prediction": "oak"}
    assert json.loads((tmp_path / "timing.json").read_text())["details"] == {"epochs": 2}
