"""The examples run; the demo, which `make demo` shows, with fewer epochs."""

import sys
from pathlib import Path

import pytest

from examples import demo


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
