import json
import shutil
from pathlib import Path

import pytest
import torch

from longtail.cli import run
from longtail.data.datasets.digits import DIGITS_LT
from tests.support.public_resnet import PublicResNet, trained_like

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
    (tmp_path / "run/SHA256SUMS").unlink()
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


def test_weights_of_others_are_measured(capsys: Capture, tmp_path: Path) -> None:
    model = trained_like(PublicResNet(1, 10, in_channels=1))
    weights = {f"module.{key}": value for key, value in model.state_dict().items()}
    torch.save({"state_dict": weights}, tmp_path / "a.pth.tar")
    arguments = ["--weights", str(tmp_path / "a.pth.tar"), "--model", "resnet8", "--json"]
    assert run(["evaluate", "digits-lt:10", *arguments, "--mean", "0.3", "--std", "0.4"]) == 0
    found = json.loads(capsys.readouterr().out)
    test = DIGITS_LT.load(Path()).test
    pixels = torch.from_numpy(test.images).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        labels = model((pixels - 0.3) / 0.4).argmax(1)
    assert found["metrics"]["top1"] == pytest.approx((labels.numpy() == test.targets).mean(), abs=1e-6)
    assert found["data"] == "digits-lt:10"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--weights", "a.pth"], "--weights, --model and one DATA go together"),
        (["--model", "resnet8"], "--weights, --model and one DATA go together"),
        (["--weights", "a.pth", "--model", "resnet9"], "there is no model 'resnet9'"),
        (["--weights", "b.pth", "--model", "resnet8"], "--weights must be an existing file"),
        (["--weights", "a.pth", "--model", "resnet14"], "stage1.1.conv1.weight is missing"),
        (["--weights", "a.pth", "--model", "resnet8"], "has no classifier of 10 classes for resnet8"),
        (["--weights", "a b.pth", "--model", "resnet8"], "--model resnet8 --pretrained 'a b.pth'"),
        (["--weights", "a.pth", "--model", "resnet8", "--mean", "some"], "--mean must be numbers"),
        (["--mean", "0.5"], "--image-size, --mean and --std go with --weights"),
    ],
)
def test_weights_that_cannot_be_measured(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.pth", "a b.pth"):
        torch.save(PublicResNet(1, 7, in_channels=1).state_dict(), name)
    assert run(["evaluate", "digits-lt:10", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) <= 3
