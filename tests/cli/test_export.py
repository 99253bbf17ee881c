import shutil
import sys
from pathlib import Path

import onnxruntime
import pytest

from longtail.cli import run

Capture = pytest.CaptureFixture[str]


def test_onnx_is_written_into_the_run_and_its_difference_printed(
    capsys: Capture, digits_run: Path, tmp_path: Path
) -> None:
    shutil.copytree(digits_run, tmp_path / "run")
    assert run(["export", str(tmp_path / "run")]) == 0
    file, difference = capsys.readouterr().out.splitlines()
    assert file == str(tmp_path / "run/model.onnx")
    assert difference.startswith("largest difference from torch: ")
    assert difference.endswith("(batches of 1, 3, 8)")
    assert float(difference.split()[4]) < 1e-4
    (inputs,) = onnxruntime.InferenceSession(file).get_inputs()
    assert inputs.shape == ["batch", 1, 8, 8]


def test_a_folder_for_a_hub(capsys: Capture, digits_run: Path, tmp_path: Path) -> None:
    assert run(["export", str(digits_run), "--format", "safetensors", "--out", str(tmp_path / "hub")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'hub'}\n"
    assert (tmp_path / "hub/README.md").read_text().startswith("---\nlibrary_name: longtail\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "m.pt"], "--out must end in .onnx, got m.pt"),
        (["--push-to-hub", "me/birds"], "--push-to-hub uploads a safetensors folder"),
        (["--format", "safetensors", "--out", "m.onnx"], "--out must be a folder"),
    ],
)
def test_usage(capsys: Capture, digits_run: Path, arguments: list[str], message: str) -> None:
    assert run(["export", str(digits_run), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_missing_extra_gives_the_one_line_that_installs_it(
    capsys: Capture, digits_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert run(["export", str(digits_run)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "longtail: onnx and onnxscript are not installed",
        "ONNX export writes the file with onnx and checks it with onnxruntime",
        "pip install 'longtail[onnx]'",
    ]
