import json
import shutil
from pathlib import Path

import pytest

from longtail.cli import run

Capture = pytest.CaptureFixture[str]


def test_a_table_of_the_groups(capsys: Capture, digits_run: Path) -> None:
    assert run(["evaluate", str(digits_run), "--shots", "50,15"]) == 0
    first, *table, definition = capsys.readouterr().out.splitlines()
    assert first == "digits-lt:10, test: 540 images"
    assert [line.split()[0] for line in table] == ["accuracy", "all", "balanced", "many", "medium", "few"]
    assert definition == "many: more than 50, medium: 15 to 50, few: fewer than 15 training images"


def test_json_has_every_number(capsys: Capture, digits_run: Path) -> None:
    assert run(["evaluate", str(digits_run), "digits-lt:50", "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert (found["data"], found["split"]) == ("digits-lt:50", "test")
    assert found["metrics"]["many"] is None
    assert found["metrics"]["balanced"] == found["evaluation"]["balanced"]["value"]
    assert captured.err == ""


def test_one_test_image_has_no_interval(capsys: Capture, digits_run: Path, tmp_path: Path) -> None:
    shutil.copytree(digits_run, tmp_path / "run")
    lines = (tmp_path / "run/predictions.csv").read_text().splitlines()
    (tmp_path / "run/predictions.csv").write_text("\n".join(lines[:2]))
    assert run(["evaluate", str(tmp_path / "run")]) == 0
    assert "none for one image" in capsys.readouterr().out
    assert run(["report", str(tmp_path / "run")]) == 0
    assert "One test image gives no interval." in (tmp_path / "run/report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--shots", "100"], 2, "--shots must be two whole numbers"),
        (["--shots", "20,100"], 2, "for example --shots 100,20"),
        (["--split", "tset"], 2, ""),
        (["nowhere/"], 3, "does not exist"),
    ],
)
def test_what_cannot_be_measured(
    capsys: Capture, digits_run: Path, arguments: list[str], code: int, message: str
) -> None:
    assert run(["evaluate", str(digits_run), *arguments]) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
