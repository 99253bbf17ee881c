"""The examples run; the demo, which `make demo` shows, with fewer epochs."""

import sys
from pathlib import Path

import pytest

from examples import demo


def test_the_demo_trains_both_norms_and_prints_them_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo", "--out", str(tmp_path), "--epochs", "1"])
    demo.main()
    said = capsys.readouterr()
    head, *rows = said.out.splitlines()
    assert head.split() == ["batch", "norm", "compound", "batch", "norm"]
    assert [row.split()[0] for row in rows[:5]] == ["all", "balanced", "many", "medium", "few"]
    assert sum(row.startswith("  class") for row in rows) == 10
    assert "epoch 1/1" in said.err
    for method in ("erm", "compound_bn"):
        assert (tmp_path / f"demo-{method}" / "report.html").is_file()
