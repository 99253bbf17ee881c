"""The command line, run as users run it."""

import json
import re
from pathlib import Path

import pytest
import yaml

from longtail.cli import run
from longtail.training import TrainFlags

TINY = ["--model", "resnet8", "--epochs", "1", "--batch-size", "128", "--workers", "0"]


def test_a_run_trains_and_says_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", "digits-lt:10", "--method", "erm", *TINY]) == 0
    said = capsys.readouterr()
    assert "balanced" in said.out
    assert f"report: {Path('runs') / 'digits-lt-1' / 'report.html'}" in said.out
    assert "epoch 1/1" in said.err
    assert "test: all" in said.err
    # The run's own settings repeat it, in the next free folder.
    assert run(["train", "--config", "runs/digits-lt-1/config.yaml"]) == 0
    for name in ("model/model.safetensors", "metrics.csv", "predictions.csv", "config.yaml", "split.csv"):
        first, again = (Path("runs") / folder / name for folder in ("digits-lt-1", "digits-lt-2"))
        assert first.read_bytes() == again.read_bytes(), name
    capsys.readouterr()
    assert run(["list", "runs", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in listed] == ["runs/digits-lt-1", "runs/digits-lt-2"]
    assert "finished" in listed[0]["about"]
    assert run(["train", "--resume", "runs/digits-lt-1", "--set", "optim.momentum=0.5"]) == 2
    assert "a resumed run cannot change optim.momentum" in capsys.readouterr().err


# What a row of the ablation settles by itself: the weight of the split path's loss, and whether its passes update.
ROWS = {
    "baseline": (None, False),
    "sbn": (None, True),
    "cbn": (None, False),
    "cbn_sbn": (1.0, False),
    "cbn_sbn_dpl": (0.0, False),
}


def test_the_rows_of_the_ablation_differ_in_the_row_alone(capsys: pytest.CaptureFixture[str]) -> None:
    resolved = {}
    for row, (weight, updates) in ROWS.items():
        command = ["train", "digits-lt", "--method", "compound_bn", "--dry-run", "--set", f"method.row={row}"]
        assert run(command) == 0
        settings = yaml.safe_load(capsys.readouterr().out)
        assert settings["method"].pop("row") == row
        assert settings["method"].pop("split_loss_weight") == weight
        assert settings["method"]["reading_settings"].pop("update_on_split") is updates
        resolved[row] = settings
    assert all(settings == resolved["baseline"] for settings in resolved.values())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["train"], 2, "DATA is missing"),
        (["train", "digits-lt", "--epoch", "3"], 2, "Did you mean --epochs?"),
        (["train", "digits-lt", "--method", "compund_bn"], 2, "did you mean 'compound_bn'"),
        (["train", "digits-lt", "--model", "resnt32"], 2, "did you mean"),
        (["train", "digits-lt", "--set", "optim.momentun=0.9"], 2, "did you mean optim.momentum?"),
        (
            ["train", "digits-lt", "--method", "compound_bn", "--set", "method.component=2"],
            2,
            "did you mean method.components?",
        ),
        (["train", "digits-lt", "--config", "nowhere.yaml"], 2, "cannot read nowhere.yaml"),
        (
            ["train", "digits-lt", "--workers", "some"],
            2,
            "workers must be an integer >= 0 and at most 512 or 'auto', got 'some'",
        ),
        (
            ["train", "digits-lt", "--epochs", "1.5"],
            2,
            "epochs must be an integer >= 0 and at most 1,000,000 or 'auto', got 1.5",
        ),
        (["train", "digits-lt", "--crop-scale", "2"], 2, "crop_scale must be a finite number in (0, 1] or 'auto'"),
        (["train", "digits-lt", "--augment", "weaker"], 2, 'Did you mean "weak"?'),
        (["train", "digits-lt", "--lr", "nan"], 2, "optim.lr must be a finite number > 0, got nan"),
        (["train", "digits-lt", "--set", "optim.sam=-1"], 2, "optim.sam must be a finite number > 0 or null, got -1"),
        (["train", "--resume", "a", "--out", "b"], 2, "--out b cannot go with --resume a"),
        (["train", "digits-lt", "--resume"], 2, "--resume auto needs --out"),
        (["train", "nowhere/"], 3, "nowhere"),
        (["train", "--resume", "nowhere"], 3, "nowhere is not a run"),
        (["list", "methods"], 0, ""),
    ],
)
def test_mistakes_are_answered(
    arguments: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == code
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert not Path("runs").exists()


def test_a_dry_run_prints_the_settings_that_the_run_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["train", "digits-lt:10", "--method", "erm", "--set", "method.loss=focal", *TINY]
    assert run([*arguments, "--dry-run"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert not Path("runs").exists()
    assert run(arguments) == 0
    assert yaml.safe_load(Path("runs/digits-lt-1/config.yaml").read_text()) == shown
    assert shown["method"]["loss"] == "focal"
    assert isinstance(shown["image_size"], int)
    assert isinstance(shown["workers"], int)
    assert isinstance(shown["val_fraction"], float)


@pytest.mark.parametrize(
    "arguments",
    [
        ["nowhere/"],
        ["digits-lt", "--method", "compund_bn"],
        ["digits-lt", "--model", "resnt32"],
        ["digits-lt", "--method", "erm", "--set", "method.los=focal"],
        ["digits-lt", "--method", "erm", "--set", "method.loss=focl"],
        ["digits-lt", "--loggers", "tensorbord"],
        ["digits-lt", "--out", "used"],
    ],
)
def test_a_dry_run_refuses_what_training_refuses(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes.txt").touch()

    def refusal(*more: str) -> tuple[int, list[str]]:
        code = run(["train", *arguments, *more])
        told = capsys.readouterr().err.splitlines()
        first = next(number for number, line in enumerate(told) if line.startswith("longtail: "))
        return code, told[first:]

    code, lines = refusal()
    assert code != 0
    assert refusal("--dry-run") == (code, lines)


@pytest.mark.parametrize(
    ("flags", "flip", "augment", "crop_scale"),
    [
        ([], False, "strong", 0.08),
        (["--flip"], True, "strong", 0.08),
        (["--no-flip", "--augment", "weak", "--crop-scale", "0.5"], False, "weak", 0.5),
        (["--set", "flip=true", "--set", "augment=none"], True, "none", 0.08),
    ],
)
def test_augmentation_is_as_asked_for(
    flags: list[str], flip: bool, augment: str, crop_scale: float, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", "digits-lt", *flags, "--dry-run"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["flip"], shown["augment"], shown["crop_scale"]) == (flip, augment, crop_scale)


def test_help_shows_every_flag_with_its_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for name in TrainFlags.__annotations__:
        assert f" --{name.replace('_', '-')} " in shown
    for part in (
        "--epochs INT How often",
        "--lr FLOAT The highest",
        "--devices INT|CHOICE How many",
        "--compile Compile",
        "--flip --no-flip Whether",
    ):
        assert part in shown


@pytest.mark.parametrize("kind", ["methods", "losses", "samplers", "datasets", "recipes"])
def test_list_names_what_there_is(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", kind, "--json"]) == 0
    names = {row["name"] for row in json.loads(capsys.readouterr().out)}
    known = {
        "methods": {"compound_bn", "erm", "decoupled"},
        "losses": {"balanced_softmax", "ldam"},
        "samplers": {"instance", "class_balanced"},
        "datasets": {"cifar10-lt", "digits-lt"},
        "recipes": {"cifar10-lt/compound_bn", "default/erm"},
    }
    assert known[kind] <= names


def test_the_doctor_examines_and_tests(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["self-test"] == "passed"
    assert found["versions"]["torch"]


def test_the_doctor_separates_names_from_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(re.fullmatch(r"  lightning-fabric +[\d.]+", line) for line in lines)


def test_the_doctor_finds_a_broken_layer(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from longtail.nn import CompoundBatchNorm2d

    right = CompoundBatchNorm2d.forward
    # The values stay, the gradient does not.
    monkeypatch.setattr(CompoundBatchNorm2d, "forward", lambda self, x: right(self, x.detach()) + 0 * x)
    assert run(["doctor"]) == 1
    assert "failed: compound batch norm differs from batch norm" in capsys.readouterr().out


def test_a_corrupt_image_in_a_folder_is_left_out_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import numpy as np
    from PIL import Image

    draw = np.random.default_rng(0)
    for name, count in (("cat", 30), ("dog", 12)):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(count):
            picture = Image.fromarray(draw.integers(0, 255, (40, 40, 3), dtype=np.uint8))
            picture.save(tmp_path / "pets" / name / f"{number}.png")
    (tmp_path / "pets" / "dog" / "broken.png").write_bytes(b"no image")
    monkeypatch.chdir(tmp_path)
    assert (
        run(["train", "pets", "--method", "erm", "--image-size", "32", "--set", "batch_size=8", *TINY[:4], *TINY[6:]])
        == 0
    )
    assert "unreadable and left out: 1 of 43 images" in capsys.readouterr().err
    assert "broken.png" not in (tmp_path / "runs" / "pets-1" / "split.csv").read_text()


def test_mistakes_are_answered_the_same_where_pydantic_is_imported(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pydantic")
    assert run(["train", "digits-lt", "--epochs", "1.5"]) == 2
    assert "longtail: epochs must be an integer" in capsys.readouterr().err
