"""What a method cannot train on is refused in three lines, before anything is trained; by the command itself."""

from pathlib import Path

import pytest

from longtail._errors import UsageError
from longtail.cli import run
from longtail.training.check_method import refusal
from tests.support.image_folders import write_image_folders

TINY = ["--from-scratch", "--workers", "0", "--batch-size", "64"]
RESNET, VIT = ("--model", "resnet8", "--image-size", "8"), ("--model", "test_vit", "--image-size", "16")
CONVNEXT = ("--model", "convnext_atto", "--image-size", "32")
TAIL = ("--set", "optim.sam=0.05", "--set", "optim.sam_classes=tail")


def train(out: Path, name: str, *given: str) -> int:
    return run(["train", "digits-lt:100", "--method", name, *TINY, *given, "--out", str(out)])


@pytest.mark.parametrize(
    ("name", "given", "what", "fix"),
    [
        *((name, CONVNEXT, "must have a batch norm", "resnet18") for name in ("compound_bn", "mode_norm")),
        *((name, VIT, "whose last stage is known", "a CIFAR ResNet") for name in ("bbn", "ride", "experts", "ace")),
        ("nbn", CONVNEXT, "whose last stage is known", "--method erm takes any network"),
        ("lift", RESNET, "model must", "--method erm takes any network"),
        ("lws", (*RESNET, "--epochs", "1"), "epochs must be at least 2, one for each stage, got 1", "--epochs 2"),
        ("gistnet", (*RESNET, "--epochs", "1"), "epochs must be at least 2", "--epochs 2"),
        ("dro_lt", (*RESNET, "--epochs", "2"), "epochs must be at least 3", "--epochs 3"),
        ("ssd", (*RESNET, "--epochs", "2"), "epochs must be at least 3", "a method of one stage such as erm"),
        ("paco", (*RESNET, "--set", "method.queue_size=16"), "the 64 images of a batch", "method.queue_size=512"),
        ("ssd", (*RESNET, "--set", "method.queue_size=16"), "the 64 images of a batch", "method.queue_size=512"),
        ("paco", (*RESNET, "--set", "optim.accumulate=2"), "optim.accumulate must be 1 for paco", "--batch-size"),
        (
            "erm",
            (*RESNET, "--set", "optim.accumulate=65"),
            "optim.accumulate must be at most 64",
            "optim.accumulate=32",
        ),
        ("ride", VIT[:2], "image_size must be at least 16 for test_vit", "--image-size 16, or --model resnet20"),
        ("bbn", (*RESNET, *TAIL), "optim.sam_classes must be all for bbn", "leave optim.sam_classes out"),
        ("dive", RESNET, "method.teacher must name a finished run", "--set method.teacher=runs/NAME"),
        ("ib", (*RESNET, "--set", "method.alpha=0"), "alpha must be positive", "`longtail list methods`"),
    ],
)
def test_it_is_refused_with_what_works(
    name: str, given: tuple[str, ...], what: str, fix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "run", name, *given) == 2
    lines = capsys.readouterr().err.rstrip().splitlines()[-3:]
    assert what in lines[0]
    assert fix in lines[2]
    assert not (tmp_path / "run" / "last.ckpt").exists()


def test_a_batch_of_one_image_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["train", "digits-lt:100", "--from-scratch", *RESNET, "--batch-size", "1", "--out", str(tmp_path / "run")]
    assert run(given) == 2
    what, _, fix = capsys.readouterr().err.rstrip().splitlines()[-3:]
    assert "batch_size must be at least 2, got 1 for 1 rank" in what
    assert fix == "--batch-size 2"


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("paco", "paco: 1 class of one image, drawn to nothing but its other view and its centre"),
        ("lade", "missing from most batches of 64; a larger --batch-size serves better"),
    ],
)
def test_what_it_can_train_on_but_poorly_is_said_before(
    name: str, remark: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "run", name, *RESNET, "--epochs", "1") == 0
    assert remark in capsys.readouterr().err


def test_a_teacher_of_other_classes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    teacher, animals = tmp_path / "teacher", write_image_folders(tmp_path / "animals", {"cat": 8, "dog": 8})
    assert train(teacher, "erm", *RESNET, "--epochs", "1") == 0
    flags = ["--method", "dive", "--set", f"method.teacher={teacher}", *TINY, *RESNET, "--epochs", "1"]
    capsys.readouterr()
    assert run(["train", str(animals), *flags, "--out", str(tmp_path / "run")]) == 3
    lines = capsys.readouterr().err.rstrip().splitlines()[-3:]
    assert f"{teacher} was trained on other classes than {animals}" in lines[0]
    assert "name a run on the same data" in lines[2]
    assert not (tmp_path / "run" / "last.ckpt").exists()


def test_the_setting_whose_run_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "runs" / "teacher"
    assert train(tmp_path / "run", "dive", *RESNET, "--epochs", "1", "--set", f"method.teacher={missing}") == 3
    lines = capsys.readouterr().err.rstrip().splitlines()[-3:]
    assert f"method.teacher: {missing} does not exist" in lines[0]
    assert "check the path" in lines[2]


def test_a_hint_in_brackets_is_the_line_that_says_what_to_do() -> None:
    found = refusal("vs", ValueError("gamma must be less (than one), got 2 (take 0.2)"))
    assert isinstance(found, UsageError)
    assert (found.what, found.fix) == ("gamma must be less (than one), got 2", "take 0.2")


def test_without_a_hint_the_list_of_methods_is_named() -> None:
    found = refusal("vs", ValueError("gamma must be at most (or near) one, got 2"))
    assert (found.what, found.fix) == (
        "gamma must be at most (or near) one, got 2",
        "`longtail list methods` shows what vs needs",
    )
