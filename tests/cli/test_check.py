"""Every data row of the table of errors that a beginner meets: what is said, and the exit code."""

import importlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from longtail.cli import run
from tests.support.drawn_signs import write_sign_folders
from tests.support.image_folders import write_image as image
from tests.support.image_folders import write_image_folders as folder

Capture = pytest.CaptureFixture[str]


def checked(capsys: Capture, *arguments: object) -> dict[str, Any]:
    """The JSON of a check that succeeds."""
    assert run(["check", *map(str, arguments), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: Capture, *arguments: object, code: int = 3) -> list[str]:
    """The lines on stderr of a check that fails."""
    assert run(["check", *map(str, arguments)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.strip().splitlines()
    assert len(lines) == 3
    return lines


def problem(report: dict[str, Any], code: str) -> dict[str, Any]:
    (found,) = [problem for problem in report["problems"] if problem["code"] == code]
    return dict(found)


def test_a_folder_of_class_folders(tmp_path: Path, capsys: Capture) -> None:
    report = checked(capsys, folder(tmp_path / "birds", {"wren": 2, "robin": 12, "crow": 4}))
    assert report["classes"] == ["crow", "robin", "wren"]
    assert report["class_counts"] == {"crow": 4, "robin": 12, "wren": 2}
    assert (report["train"], report["val"], report["test"]) == (18, 0, 0)
    assert report["imbalance_factor"] == 6.0
    assert report["groups"] == {"many": 0, "medium": 0, "few": 3}
    assert report["problems"] == []


def test_classes_that_are_mirror_images_of_each_other(tmp_path: Path, capsys: Capture) -> None:
    signs = write_sign_folders(tmp_path, 24, ("stop", "turn left", "turn right"))
    found = problem(checked(capsys, signs), "mirrored-classes")
    assert found["message"] == "mirrored, 'turn left' looks like 'turn right': train with --no-flip"
    assert (found["severity"], found["paths"]) == ("warning", ["turn left", "turn right"])
    assert run(["check", str(signs)]) == 0
    assert f"warning: {found['message']}" in capsys.readouterr().out


def test_the_text_says_the_same_on_stdout(tmp_path: Path, capsys: Capture) -> None:
    assert run(["check", str(folder(tmp_path, {"wren": 2, "robin": 12}))]) == 0
    captured = capsys.readouterr()
    assert "train 14  val 0  test 0" in captured.out
    assert "robin       12  ####" in captured.out
    assert captured.err == ""


def test_the_text_fits_into_a_terminal_of_80_columns(tmp_path: Path, capsys: Capture) -> None:
    assert run(["check", str(folder(tmp_path / "birds", {"a wren with a very very long name": 2, "robin": 1}))]) == 0
    lines = capsys.readouterr().out.splitlines()
    (longest, shortest) = (line for line in lines if line.endswith("#"))
    assert len(longest) <= 80
    assert longest.count("#") == 2 * shortest.count("#") > 30
    assert longest.startswith("  a wren with a very very long … ")


def test_a_terminal_shows_a_word_before_the_folder_is_read(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    said = []
    module = importlib.import_module("longtail.data.open_dataset")
    taken = module.take_inventory

    def slow(*arguments: Any, **options: Any) -> Any:
        time.sleep(1)  # a bar is drawn ten times a second
        said.append(capsys.readouterr().err)
        return taken(*arguments, **options)

    monkeypatch.setattr(module, "take_inventory", slow)
    assert run(["check", str(folder(tmp_path / "birds", {"wren": 2, "robin": 12}))]) == 0
    assert "checking" in said[0]
    assert len(set(re.findall("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", said[0]))) > 1  # it turns


def test_a_folder_that_does_not_exist(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path / "birds", {"a": 1})
    monkeypatch.chdir(tmp_path)
    what, where, fix = refused(capsys, "brids")
    assert what == "longtail: brids does not exist"
    assert where == f"looked from {tmp_path}"
    assert fix == f"did you mean {tmp_path / 'birds'}?"


def test_a_pipe_is_not_called_missing(tmp_path: Path, capsys: Capture) -> None:
    os.mkfifo(tmp_path / "list.csv")
    assert (
        refused(capsys, str(tmp_path / "list.csv"))[0] == f"longtail: {tmp_path}/list.csv is a pipe, socket or device"
    )


def test_a_failed_check_still_prints_its_json(tmp_path: Path, capsys: Capture) -> None:
    assert run(["check", str(tmp_path / "nothing"), "--json"]) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out)["problems"][0]["code"] == "missing-folder"
    assert "does not exist" in captured.err


def test_a_misspelt_name(capsys: Capture) -> None:
    assert "did you mean cifar10-lt?" in refused(capsys, "cifar-10-lt:100")[2]


def test_a_flat_folder(tmp_path: Path, capsys: Capture) -> None:
    folder(tmp_path, {"birds": 3})
    what, _, fix = refused(capsys, tmp_path / "birds")
    assert "birds holds 3 images and no class folders" in what
    assert "birds/CLASS/image.jpg" in fix
    assert "birds/train/CLASS/image.jpg" in fix


def test_a_class_folder_itself(tmp_path: Path, capsys: Capture) -> None:
    folder(tmp_path, {"wren": 3, "robin": 2})
    _, why, _ = refused(capsys, tmp_path / "wren")
    assert f"{tmp_path} has 2 class folders" in why


def test_a_folder_without_images(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "birds").mkdir()
    assert "holds no images" in refused(capsys, tmp_path / "birds")[0]


SPLITS = {"train/a": 3, "train/b": 2, "valid/a": 1, "valid/b": 1, "test/a": 2, "test/b": 2}


@pytest.mark.parametrize("place", ["data", "", "data/train", "data/test"])
def test_splits_are_known_from_one_level_too_high_and_too_low(tmp_path: Path, capsys: Capture, place: str) -> None:
    folder(tmp_path / "top" / "data", SPLITS)
    report = checked(capsys, tmp_path / "top" / place)
    assert report["classes"] == ["a", "b"]
    assert (report["train"], report["val"], report["test"]) == (5, 2, 4)
    assert bool(report["notes"]) == (place != "data")


def test_classes_one_level_deeper(tmp_path: Path, capsys: Capture) -> None:
    report = checked(capsys, folder(tmp_path, {"birds/images/a": 2, "birds/images/b": 2}))
    assert report["classes"] == ["a", "b"]
    assert "one level deeper" in report["notes"][0]


def test_a_class_may_be_called_train(tmp_path: Path, capsys: Capture) -> None:
    report = checked(capsys, folder(tmp_path, {"bus": 2, "train": 3, "tram": 2}))
    assert report["class_counts"] == {"bus": 2, "train": 3, "tram": 2}


def test_splits_without_class_folders(tmp_path: Path, capsys: Capture) -> None:
    assert "train holds 2 images and no class folders" in refused(capsys, folder(tmp_path, {"train": 2, "test": 2}))[0]


def test_what_lies_beside_the_splits_is_left_out_and_named(tmp_path: Path, capsys: Capture) -> None:
    report = checked(capsys, folder(tmp_path, {"train/a": 2, "train/b": 2, "annotations": 0}))
    assert report["notes"] == ["left out, beside the splits: annotations/"]


def test_images_beside_the_class_folders_are_left_out_and_counted(tmp_path: Path, capsys: Capture) -> None:
    report = checked(capsys, folder(tmp_path, {"a": 2, "b": 2, ".": 3}))
    assert report["train"] == 4
    assert report["notes"] == [f"left out, in no class folder: 3 images in {tmp_path} itself"]


def test_folders_inside_a_class_belong_to_it_and_hidden_ones_do_not(tmp_path: Path, capsys: Capture) -> None:
    report = checked(capsys, folder(tmp_path, {"a": 1, "a/2024/may": 2, "a/.cache": 1, "b": 2, ".git": 1}))
    assert report["class_counts"] == {"a": 3, "b": 2}


def test_a_path_that_the_system_refuses(capsys: Capture) -> None:
    assert "cannot be read: File name too long" in refused(capsys, "x" * 5000)[0]


def test_a_name_that_is_no_text_is_shown_escaped(tmp_path: Path) -> None:
    folder(tmp_path, {"a": 2, "b": 2})
    (tmp_path / "a").rename(tmp_path / os.fsdecode(b"\xff\xe9"))
    done = subprocess.run([sys.executable, "-m", "longtail", "check", str(tmp_path)], capture_output=True, check=False)
    assert done.returncode == 0
    assert rb"\udcff\udce9" in done.stdout


def test_cifar_that_is_not_the_true_one(tmp_path: Path, capsys: Capture) -> None:
    batches = tmp_path / "cifar-10-batches-bin"
    batches.mkdir()
    for name in (
        "data_batch_1",
        "data_batch_2",
        "data_batch_3",
        "data_batch_4",
        "data_batch_5",
        "test_batch",
    ):
        (batches / f"{name}.bin").write_bytes(bytes(3073 * 10))
    what, _, fix = refused(capsys, "cifar10-lt", "--root", tmp_path)
    assert "does not hold cifar10-lt: its training images have SHA-256" in what
    assert "fetch it again with: longtail data fetch cifar10-lt" in fix


def test_test_images_without_training_images(tmp_path: Path, capsys: Capture) -> None:
    assert "but no train/" in refused(capsys, folder(tmp_path, {"val/a": 1, "test/a": 1}))[0]


def test_an_empty_class(tmp_path: Path, capsys: Capture) -> None:
    folder(tmp_path, {"train/a": 2, "train/b": 2, "train/c": 0, "test/a": 1, "test/b": 1, "test/c": 1})
    what, _, fix = refused(capsys, tmp_path)
    assert "1 class without a training image" in what
    assert "'c'" in what
    assert "--allow-empty" in fix
    report = checked(capsys, tmp_path, "--allow-empty")
    assert report["classes"] == ["a", "b"]
    assert report["test"] == 2
    assert problem(report, "empty-class")["paths"] == ["c"]


def test_corrupt_images_are_found_by_their_headers_and_truncated_ones_by_a_full_look(
    tmp_path: Path, capsys: Capture
) -> None:
    folder(tmp_path, {"a": 4, "b": 4})
    (tmp_path / "a" / "0.png").write_bytes(b"not an image")
    (tmp_path / "a" / "1.png").write_bytes(b"")
    whole = (tmp_path / "b" / "2.png").read_bytes()
    (tmp_path / "b" / "2.png").write_bytes(whole[: len(whole) // 2])

    report = checked(capsys, tmp_path)
    assert problem(report, "unreadable")["paths"] == ["a/0.png", "a/1.png"]
    assert report["class_counts"] == {"a": 2, "b": 4}

    report = checked(capsys, tmp_path, "--full")
    assert problem(report, "unreadable")["paths"] == ["a/0.png", "a/1.png", "b/2.png"]
    assert report["train"] == 5
    assert run(["check", str(tmp_path), "--strict"]) == 3


def test_a_class_of_which_no_image_can_be_read(tmp_path: Path, capsys: Capture) -> None:
    folder(tmp_path, {"a": 2, "b": 1})
    (tmp_path / "b" / "0.png").write_bytes(b"broken")
    assert "no training image of 1 class can be read: b" in refused(capsys, tmp_path)[0]


def test_one_class(tmp_path: Path, capsys: Capture) -> None:
    what, why, _ = refused(capsys, folder(tmp_path, {"robin": 3}))
    assert "one class only, 'robin'" in what
    assert "at least two" in why


def test_one_image(tmp_path: Path, capsys: Capture) -> None:
    assert "one class only" in refused(capsys, folder(tmp_path, {"robin": 1}))[0]


def test_a_class_with_one_image_is_kept(tmp_path: Path, capsys: Capture) -> None:
    report = checked(capsys, folder(tmp_path, {"a": 3, "b": 1}), "--strict")
    assert report["class_counts"] == {"a": 3, "b": 1}
    assert problem(report, "one-image")["paths"] == ["b"]


def test_a_class_missing_from_test(tmp_path: Path, capsys: Capture) -> None:
    report = checked(capsys, folder(tmp_path, {"train/a": 2, "train/b": 2, "train/c": 2, "test/a": 1, "test/c": 1}))
    found = problem(report, "class-missing-from-test")
    assert found["paths"] == ["b"]
    assert "its balanced accuracy is over 2 of 3 classes" in found["message"]


def test_a_class_in_test_alone(tmp_path: Path, capsys: Capture) -> None:
    folder(tmp_path, {"train/robin": 2, "train/wren": 2, "test/robbin": 1, "test/wren": 1})
    what, _, fix = refused(capsys, tmp_path)
    assert "'robbin' (did you mean 'robin'?)" in what
    assert "--ignore-unknown" in fix
    report = checked(capsys, tmp_path, "--ignore-unknown")
    assert report["test"] == 1
    assert problem(report, "unknown-class")["paths"] == ["robbin"]


def test_the_same_image_in_train_and_test(tmp_path: Path, capsys: Capture) -> None:
    folder(tmp_path, {"train/a": 2, "train/b": 2, "test/a": 1, "test/b": 1})
    (tmp_path / "test" / "a" / "copy.png").write_bytes((tmp_path / "train" / "a" / "1.png").read_bytes())
    report = checked(capsys, tmp_path)
    assert problem(report, "duplicates-across-splits")["paths"] == ["train/a/1.png", "test/a/copy.png"]
    assert run(["check", str(tmp_path), "--strict"]) == 3
    assert (
        "1 problem, first: in more than one split: 1 image, for example train/a/1.png = test" in capsys.readouterr().err
    )


def test_the_same_image_under_two_labels_or_twice(tmp_path: Path, capsys: Capture) -> None:
    folder(tmp_path, {"a": 3, "b": 3})
    for target, source in (("a/8.png", "a/0.png"), ("b/9.png", "a/1.png")):
        (tmp_path / target).write_bytes((tmp_path / source).read_bytes())
    report = checked(capsys, tmp_path)
    assert problem(report, "duplicates")["paths"] == ["a/0.png", "a/8.png"]
    assert problem(report, "two-labels")["paths"] == ["a/1.png", "b/9.png"]


def test_odd_modes_sizes_and_rotation_are_counted(tmp_path: Path, capsys: Capture) -> None:
    folder(tmp_path, {"a": 2, "b": 1})
    image(tmp_path / "a" / "grey.png", mode="L")
    image(tmp_path / "a" / "alpha.png", mode="RGBA")
    image(tmp_path / "a" / "print.jpg", mode="CMYK")
    Image.fromarray(np.zeros((30, 40), np.uint16)).save(tmp_path / "b" / "deep.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    image(tmp_path / "b" / "turned.jpg", exif=exif)
    report = checked(capsys, tmp_path, "--strict", "--full")
    assert report["modes"] == {"RGB": 4, "L": 1, "RGBA": 1, "CMYK": 1, "I;16": 1}
    assert len(problem(report, "odd-modes")["paths"]) == 4
    assert problem(report, "rotated")["paths"] == ["b/turned.jpg"]
    assert report["sizes"] == [12, 12, 30]


def csv(path: Path, text: str) -> Path:
    for name in ("1", "2", "3", "4"):
        image(path.parent / "images" / f"{name}.png")
    path.write_text(text)
    return path


def test_a_csv(tmp_path: Path, capsys: Capture) -> None:
    rows = ["1.png,wren,train", "2.png,robin,train", "3.png,wren,Test", "4.png,robin,valid"]
    text = "\ufeffPath, label ,split\n" + "".join(f"images/{row}\n" for row in rows)
    report = checked(capsys, csv(tmp_path / "birds.csv", text))
    assert report["class_counts"] == {"robin": 1, "wren": 1}
    assert (report["train"], report["val"], report["test"]) == (2, 1, 1)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("path,species\nimages/1.png,wren\n", "has no column 'label'; its first line is 'path,species'"),
        ("", "has no column 'path' and no column 'label'"),
        (
            "path,label\nimages/1.png,wren\nimages/9.png,robin\n",
            "names 1 image that cannot be found, for example images/9",
        ),
        ("path,label\nimages/1.png,\n", "line 2 of"),
        ("path,label,split\nimages/1.png,wren,tets\n", "got 'tets' (did you mean 'test'?)"),
        ("path,label\nimages/1.png,wren\n", "one class only, 'wren'"),
        ("path,label\n", "no training image"),
        ("path,label,split\nimages/1.png,a,train\nimages/2.png,b,train\nimages/3.png,c,test\n", "'c'"),
    ],
)
def test_a_csv_that_is_wrong(tmp_path: Path, capsys: Capture, text: str, what: str) -> None:
    assert what in refused(capsys, csv(tmp_path / "birds.csv", text))[0]


def test_a_csv_that_is_no_text(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "birds.csv").write_bytes(b"path,label\n\xff\xfe\x00,a\n")
    assert "cannot be read as a CSV" in refused(capsys, tmp_path / "birds.csv")[0]


@pytest.mark.parametrize(
    ("data", "what", "code"),
    [
        ("digits-lt:0.1", "imbalance_factor must be at least 1, got 0.1 (did you mean 10?)", 2),
        ("digits-lt:500", "imbalance_factor must be at most max_count = 120", 2),
        ("digits-lt:lots", "'lots' is neither an imbalance factor nor a folder", 2),
        ("imagenet-lt:100", "asks for an imbalance factor", 2),
    ],
)
def test_a_name_with_a_wrong_factor(capsys: Capture, data: str, what: str, code: int) -> None:
    assert what in refused(capsys, data, code=code)[0]


def test_a_named_set_that_was_not_fetched(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTAIL_DATA", str(tmp_path / "here"))
    what, why, fix = refused(capsys, "cifar10-lt")
    assert what == f"longtail: cifar10-lt is not in {tmp_path / 'here'}"
    assert why == "nothing is downloaded unless you ask for it"
    assert fix == f"fetch it with: longtail data fetch cifar10-lt --root {tmp_path / 'here'}"
    assert str(tmp_path / "there") in refused(capsys, "cifar10-lt", "--root", tmp_path / "there")[0]
    assert str(tmp_path / "last") in refused(capsys, f"cifar10-lt:50:{tmp_path / 'last'}", "--root", "x")[0]
    assert not (tmp_path / "here").exists()


def test_the_digits_need_no_network(capsys: Capture) -> None:
    report = checked(capsys, "digits-lt:20")
    assert (report["train"], report["test"]) == (sum(report["class_counts"].values()), 540)
    assert report["imbalance_factor"] == 20.0


def test_a_test_split_of_which_no_image_can_be_read_is_no_test_split(tmp_path: Path, capsys: Capture) -> None:
    folder(tmp_path, {"train/a": 2, "train/b": 2, "test/a": 1})
    (tmp_path / "test" / "a" / "0.png").write_bytes(b"broken")
    report = checked(capsys, tmp_path)
    assert (report["train"], report["test"]) == (4, 0)
    assert problem(report, "unreadable")["paths"] == ["test/a/0.png"]


def test_all_that_stops_a_training_is_said_at_once(tmp_path: Path, capsys: Capture) -> None:
    for name in ("train/robin", "train/wren", "test/robin", "test/dove"):
        (tmp_path / "birds" / name).mkdir(parents=True)
        Image.new("RGB", (9, 9)).save(tmp_path / "birds" / name / "1.png")
    (tmp_path / "birds/train/wren/1.png").write_text("no image")
    (tmp_path / "birds/train/lark").mkdir()
    assert run(["check", str(tmp_path / "birds")]) == 3
    error = capsys.readouterr().err
    assert "1 class without a training image: 'lark'" in error
    assert "test images of 1 class that training does not have: 'dove'" in error
    assert "no training image of 1 class can be read: wren" in error
    assert run(["check", str(tmp_path / "birds"), "--json"]) == 3
    found = json.loads(capsys.readouterr().out)["problems"]
    assert [problem["code"] for problem in found] == ["empty-class", "unknown-class", "unreadable"]


def test_all_bad_lines_of_a_csv_are_named(tmp_path: Path, capsys: Capture) -> None:
    file = csv(tmp_path / "birds.csv", "path,label\nimages/1.png,\nimages/2.png,wren\n,robin\nimages/3.png,\n")
    assert "2 more bad lines: 4, 5" in refused(capsys, file)[0]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("columns", ["Filename,ClassId", "Image Path,Category", "label,path"])
def test_csvs_as_people_have_them(tmp_path: Path, capsys: Capture, encoding: str, separator: str, columns: str) -> None:
    file = csv(tmp_path / "birds.csv", "")
    rows = [("images/1.png", "wren"), ("images/2.png", "robin"), ("images/3.png", "wren")]
    order = -1 if columns == "label,path" else 1
    lines = [columns, *(",".join(row[::order]) for row in rows)]
    file.write_text("\n".join(lines).replace(",", separator), encoding=encoding)
    assert checked(capsys, file)["class_counts"] == {"robin": 1, "wren": 2}


def test_columns_are_named_where_their_names_do_not_tell(tmp_path: Path, capsys: Capture) -> None:
    file = csv(tmp_path / "birds.csv", "where;class;category\nimages/1.png;a;x\nimages/2.png;b;x\n")
    assert run(["check", str(file), "--label-column", "class"]) == 3
    assert "has no column 'path'" in capsys.readouterr().err
    assert run(["check", str(file), "--path-column", "where"]) == 3
    assert "several columns that may be the label: class, category" in capsys.readouterr().err
    assert run(["check", str(file), "--path-column", "wher", "--label-column", "class"]) == 2
    assert "did you mean 'where'?" in capsys.readouterr().err
    assert run(["check", str(file), "--path-column", "where", "--label-column", "class", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["classes"] == ["a", "b"]
