import csv
import json
import os
import shutil
from pathlib import Path

import pytest

from longtail.cli import run

Capture = pytest.CaptureFixture[str]


def predicted(capsys: Capture, *arguments: object, code: int = 0) -> tuple[str, str]:
    assert run(["predict", *map(str, arguments)]) == code
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_a_table_of_the_likeliest_classes(capsys: Capture, digits_run: Path, digit_files: list[Path]) -> None:
    out, err = predicted(capsys, digits_run, digit_files[0].parent, "--top", 2)
    lines = out.splitlines()
    assert len([line for line in lines if ".png" in line]) == len(digit_files)
    assert lines[0].startswith(f"{digit_files[0]}  ")
    assert lines[0].count("%") == 2
    assert err == ""


def test_csv_and_json_say_the_same(capsys: Capture, digits_run: Path, digit_files: list[Path], tmp_path: Path) -> None:
    out, _ = predicted(capsys, digits_run, *digit_files, "--out", tmp_path / "x.csv", "--json", "--top", 10)
    said = json.loads(out)
    rows = list(csv.DictReader((tmp_path / "x.csv").open()))
    out, _ = predicted(capsys, digits_run, *digit_files, "--out", tmp_path / "x.json", "--top", 10)
    assert out == f"12 images classified: {tmp_path / 'x.json'}\n"
    assert json.loads((tmp_path / "x.json").read_text()) == said
    for image, row in zip(said, rows, strict=True):
        first, second = image["predictions"][:2]
        assert (row["path"], row["class"], row["class_2"]) == (image["path"], first["class"], second["class"])
        assert float(row["probability"]) == pytest.approx(first["probability"], abs=1e-6)
        assert [guess["rare"] for guess in image["predictions"]] == [
            guess["train_images"] < 20 for guess in image["predictions"]
        ]
        assert row["error"] == ""


def test_rare_classes_carry_a_star(capsys: Capture, digits_run: Path, digit_files: list[Path]) -> None:
    out, _ = predicted(capsys, digits_run, digit_files[0], "--top", 10)
    first, note = out.splitlines()
    assert [name for name in "0123456789" if f" {name}* " in first] == ["7", "8", "9"]
    assert note == "* rare: a class with few training images"


def test_an_unreadable_image_is_reported_and_the_others_are_predicted(
    capsys: Capture, digits_run: Path, digit_files: list[Path], tmp_path: Path
) -> None:
    shutil.copy(__file__, digit_files[0].parent / "code.png")
    (digit_files[0].parent / "empty.jpg").touch()
    out, err = predicted(capsys, digits_run, digit_files[0].parent, "--out", tmp_path / "x.csv", code=3)
    rows = {Path(row["path"]).name: row for row in csv.DictReader((tmp_path / "x.csv").open())}
    assert [name for name, row in rows.items() if row["error"]] == ["code.png", "empty.jpg"]
    assert rows["code.png"]["class"] == ""
    assert all(row["class"] for name, row in rows.items() if name[:2].isdigit())
    assert out == f"12 images classified: {tmp_path / 'x.csv'}\n"
    assert [line.split(" cannot be read: ")[0] for line in err.splitlines()] == [
        f"longtail: {digit_files[0].parent / name}" for name in ("code.png", "empty.jpg")
    ]


def test_a_pipe_is_no_image_wherever_it_is_named(
    capsys: Capture, digits_run: Path, digit_files: list[Path], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "a.png")
    (tmp_path / "list.csv").write_text(f"path\n{digit_files[0]}\na.png\n", encoding="utf-8")
    for named in (["a.png"], ["list.csv"]):
        _, err = predicted(capsys, digits_run, *(tmp_path / name for name in named), code=3)
        assert "a.png cannot be read: " in err
        assert "it is a pipe, socket or device, no file" in err


def test_images_of_which_none_can_be_read(capsys: Capture, digits_run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("no image")
    out, _ = predicted(capsys, digits_run, tmp_path / "a.png", code=3)
    assert out.split() == [str(tmp_path / "a.png"), "unreadable"]
    out, _ = predicted(capsys, digits_run, tmp_path / "a.png", "--json", code=3)
    assert json.loads(out)[0]["predictions"] == []


def test_the_command_in_a_message_can_be_pasted(capsys: Capture) -> None:
    _, err = predicted(capsys, "my runs/birds 1", code=2)
    assert err.splitlines()[-1] == "name images or a folder: longtail predict 'my runs/birds 1' birds/*.jpg"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["{run}"], 2, "IMAGES is missing"),
        (["{run}", "x.png", "--out", "x.txt"], 2, "--out must end in .csv or .json"),
        (["{run}", "x.png", "--top", "0"], 2, "--top must be at least 1, got 0"),
        (["{run}", "nowhere.png"], 3, "nowhere.png does not exist"),
        (["{run}", "{tmp}/*.gif"], 3, "holds no images"),
        (["{tmp}", "{image}"], 3, "is not a run: it has no config.yaml"),
        (["{tmp}/run-7", "{image}"], 3, "does not exist"),
        (["{run}", "{image}", "--out", "{tmp}/no/such/x.csv"], 3, "cannot write"),
    ],
)
def test_what_cannot_be_done_is_said_in_three_lines(
    capsys: Capture,
    digits_run: Path,
    digit_files: list[Path],
    tmp_path: Path,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    places = {"run": digits_run, "tmp": tmp_path, "image": digit_files[0]}
    out, err = predicted(capsys, *(argument.format(**places) for argument in arguments), code=code)
    assert out == ""
    assert message in err.splitlines()[0]
    assert len(err.splitlines()) <= 3
