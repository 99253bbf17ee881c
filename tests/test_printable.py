"""Names from files and folders on a terminal and in a spreadsheet."""

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail._files import csv_rows, from_cell, to_cell
from longtail._printable import printable
from longtail.cli import run
from longtail.evaluation import write_predictions
from longtail.evaluation.predictions import read_predictions
from tests.support.image_folders import write_image

SOURCES = Path(__file__).parents[1] / "src" / "longtail" / "cli"


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", printable(text))


@given(st.text())
def test_a_cell_is_read_back_as_the_text_that_it_was(text: str) -> None:
    assert from_cell(to_cell(text)) == text


@given(st.text(min_size=1))
def test_no_cell_looks_like_a_formula(text: str) -> None:
    assert to_cell(text)[0] not in "=+-@\t\r"


@pytest.mark.parametrize("name", ["=1+1", "+a", "-a", "@a", "'a", "'=a", "a\rb", "\ta", 'a"b', "a,b"])
def test_names_that_look_like_formulas_survive_the_predictions(tmp_path: Path, name: str) -> None:
    file = tmp_path / "predictions.csv"
    write_predictions(file, paths=[name], target=[0], logits=np.array([[2.0, 1.0]]), classes=[name, "other"])
    assert read_predictions(file, [name, "other"]).paths == (name,)
    with file.open(newline="") as lines:
        assert next(csv.DictReader(lines))["path"][0] not in "=+-@\t\r"


def test_rows_of_a_csv_are_read_back() -> None:
    text = io.StringIO()
    csv_rows(text, [["a\rb", "c\nd", 'e"f']])
    assert list(csv.reader(io.StringIO(text.getvalue(), newline=""))) == [["a\rb", "c\nd", 'e"f']]


def test_a_name_with_control_characters_is_shown_spelt_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for label in ("\x1b[31mred", "tit"):
        for number in range(3):
            write_image(tmp_path / label / f"{number}.png")
    assert run(["check", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert r"\x1b[31mred" in shown.out
    assert run(["check", str(tmp_path / "\x1b[2Jx")]) == 3
    assert run(["check", "--\x1b[2Jx"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_the_command_line_shows_nothing_but_through_show() -> None:
    direct = re.compile(r"(?<![\w.])print\((?!\"starting\")")
    assert [file.name for file in SOURCES.glob("*.py") if direct.search(file.read_text())] == []
