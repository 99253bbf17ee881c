"""The examples run as they stand, with fewer epochs."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from examples import compare_methods, demo, own_folder, own_loop


def test_the_demo_shows_the_gain_of_the_default_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo", "--out", str(tmp_path), "--epochs", "1"])
    demo.main()
    said = capsys.readouterr()
    head, *rows = said.out.splitlines()
    assert head.split() == ["plain", "training", "longtail", "compound", "batch", "norm"]
    assert [row.split()[0] for row in rows[:5]] == ["all", "balanced", "many", "medium", "few"]
    assert sum(row.startswith("  class") for row in rows) == 10
    assert "epoch 1/1" in said.err
    balanced = [float(cell.rstrip("%")) for cell in rows[1].split()[1:]]
    assert balanced[1] > balanced[0] + 10
    for name in ("plain-training", "longtail", "compound-batch-norm"):
        assert (tmp_path / f"demo-{name}" / "report.html").is_file()


def run_example(monkeypatch: pytest.MonkeyPatch, module: ModuleType, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [module.__name__, *arguments])
    module.main()


def test_a_folder_is_checked_trained_and_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_example(monkeypatch, own_folder, "--time", "20s", "--out", str(tmp_path / "run"))
    head, score, *rest = capsys.readouterr().out.splitlines()
    assert head == "10 classes, imbalance factor 120"
    assert float(score.split()[2].rstrip("%,")) > 50
    assert sum("weakest: " in line for line in rest) == 3
    assert rest[-1] == f"report: {tmp_path / 'run' / 'report.html'}"
    assert Path(rest[-1].removeprefix("report: ")).is_file()


def test_a_loop_of_ones_own_gains_by_the_loss_and_by_the_adjustment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_example(monkeypatch, own_loop, "--epochs", "20")
    lines = capsys.readouterr().out.splitlines()
    plain, balanced, adjusted = (float(line.split(" balanced ")[-1].partition("%")[0]) for line in lines)
    assert balanced > plain
    assert adjusted > plain


def test_methods_are_compared_by_seeds_and_with_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = ["cross_entropy", "balanced_softmax"]
    run_example(monkeypatch, compare_methods, "--methods", *methods, "--epochs", "2", "--out", str(tmp_path))
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said[:2]] == methods
    assert all("±" in line for line in said[:2])
    assert "balanced_softmax-0" in said[2]
    assert "cross_entropy-0" in said[2]
