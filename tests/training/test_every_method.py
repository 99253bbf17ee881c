"""`longtail train digits-lt:100 --method NAME` ends well for every method and preset, from its name alone."""

from pathlib import Path

import pytest

from longtail.cli import run
from longtail.methods import METHODS
from longtail.training.recipes import list_presets

# Three stages need three epochs, and some methods a network of another kind.
EPOCHS = {"dro_lt": 3, "ssd": 3}
MODELS, SIZES = {"lift": "test_vit"}, {"lift": "16"}
NAMES = sorted([*METHODS, *list_presets()])


def train(name: str, out: Path, *further: str) -> int:
    flags = {"--method": name, "--model": MODELS.get(name, "resnet8"), "--epochs": str(EPOCHS.get(name, 2))}
    given = [word for flag in flags.items() for word in flag]
    cheap = [
        "--batch-size",
        "128",
        "--workers",
        "0",
        "--image-size",
        SIZES.get(name, "8"),
        "--from-scratch",
        "--set",
        "eval_every=10",
    ]
    return run(["train", "digits-lt:100", *given, *cheap, "--out", str(out), *further])


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teacher") / "run"
    assert train("erm", folder) == 0
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_trains_from_its_name_alone(name: str, teacher: Path, tmp_path: Path) -> None:
    needed = METHODS[name].needs if name in METHODS else ()
    further = [word for need in needed for word in ("--set", f"method.{need}={teacher}")]
    assert train(name, tmp_path / "run", *further) == 0
    assert (tmp_path / "run" / "predictions.csv").is_file()
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("ldam_drv", (), "did you mean 'ldam_drw'?"),
        ("los", ("--epochs", "1"), "epochs must be at least 2, one for each stage, got 1"),
        ("crt", ("--epochs", "1"), "epochs must be at least 2, one for each stage, got 1"),
        ("dive", (), "method.teacher must name a finished run, got None"),
        ("ldam_drw", ("--set", "method.classifier=linear"), "classifier must be 'cosine' for loss 'ldam'"),
        ("cmo", ("--set", "method.mixing=cutmixx"), "did you mean 'cutmix'?"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_with_what_can(
    name: str, given: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["train", "digits-lt:100", "--method", name, *given, "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run" / "last.ckpt").exists()
