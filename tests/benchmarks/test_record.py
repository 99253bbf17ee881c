"""A measurement is one line, with what it takes to repeat it."""

import json
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from benchmarks import record
from benchmarks.record import append_record, current_commit, read_records


def test_a_line_is_appended_for_each_measurement(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    for seed in (0, 1):
        append_record(
            file,
            command=f"python -m one --seed {seed}",
            labels={"row": "baseline"},
            seed=seed,
            settings={"lr": 0.1},
            metrics={"accuracy": 0.5 + seed},
        )
    first, second = map(json.loads, file.read_text().splitlines())
    assert [first, second] == read_records(file)
    assert second["command"] == "python -m one --seed 1"
    assert (second["row"], second["seed"], second["settings"]) == ("baseline", 1, {"lr": 0.1})
    assert second["metrics"] == {"accuracy": 1.5}
    assert second["versions"]["torch"] == version("torch")
    assert second["machine"]["cores"] > 0


def test_a_file_that_is_not_there_has_no_records(tmp_path: Path) -> None:
    assert read_records(tmp_path / "results.jsonl") == []


def test_a_commit_is_dirty_unless_only_records_were_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> None:
        name = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *name, *arguments], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(record, "ROOT", tmp_path)
    code, results = tmp_path / "code.py", tmp_path / "study" / "results.jsonl"
    results.parent.mkdir()
    code.write_text("")
    results.write_text("")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    results.write_text("{}\n")
    assert len(current_commit()) == 7
    code.write_text("changed")
    assert current_commit().endswith("-dirty")
