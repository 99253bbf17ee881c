from pathlib import Path

import pytest

from longtail.evaluation import read_metrics


def test_rows_are_read_in_order_and_empty_cells_are_absent(tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    file.write_text("epoch,train/loss,val/accuracy_few\n0,2.5,\n0,,0.25\n1,nan,\n")
    rows = read_metrics(file)
    assert rows[:2] == [
        {"epoch": 0.0, "train/loss": 2.5, "val/accuracy_few": None},
        {"epoch": 0.0, "train/loss": None, "val/accuracy_few": 0.25},
    ]
    assert str(rows[2]["train/loss"]) == "nan"


@pytest.mark.parametrize("line", ["0,high", "0,1,2"])
def test_what_is_no_number_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "metrics.csv"
    file.write_text(f"epoch,train/loss\n{line}\n")
    with pytest.raises(ValueError, match=r"line 2: .* must be a number or empty"):
        read_metrics(file)
