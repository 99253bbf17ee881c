"""What docs/using-a-model.md says can be done is done here."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import longtail
from longtail.cli import build_app
from longtail.data.datasets.digits import DIGITS_LT

PAGE = (Path(__file__).parent.parent / "docs" / "using-a-model.md").read_text()
COMMANDS = re.findall(r"^longtail (.*?)(?:\s+#.*)?$", PAGE, flags=re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_understood(command: str) -> None:
    build_app().parse_args(shlex.split(command), exit_on_error=False, print_error=True)


EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_python_examples_run_as_they_stand(
    digits_run: Path,
    digit_files: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    Path("runs/birds-1").symlink_to(digits_run)
    for name, file in zip(("a.jpg", "b.jpg"), digit_files, strict=False):
        Path(name).symlink_to(file)
    longtail.load(digits_run).export("model.onnx")
    predict, onnx, _ = EXAMPLES
    exec(compile(predict, "using-a-model.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["a.jpg", "b.jpg"]
    exec(compile(onnx, "using-a-model.md", "exec"), {})
    assert f"('{capsys.readouterr().out.strip()}', " in lines[0].split("),")[0]


def test_the_example_of_the_mixtures_prints_each_layer(
    compound_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    Path("runs/birds-1").symlink_to(compound_run)
    exec(compile(EXAMPLES[-1], "using-a-model.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[::2]][:2] == [["1", "norm"], ["1", "stage1.0.norm1"]]
    assert sum(eval(lines[1])) == pytest.approx(1, abs=0.01)


def test_the_onnx_example_gives_the_labels_of_predict_on_jpegs_of_all_sizes(
    digits_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    classifier = longtail.load(digits_run)
    classifier.export("model.onnx")
    rng = np.random.default_rng(0)
    files = []
    for number, digit in enumerate(DIGITS_LT.load(Path()).test.images[:60, :, :, 0]):
        # With fine grain, from 9 to 800 pixels: decoded at all of their size down to an eighth of it.
        height, width = rng.integers(9, 800, 2)
        coarse = Image.fromarray(digit).convert("RGB").resize((width, height))
        pixels = np.asarray(coarse).astype(int) + rng.integers(-60, 60, (height, width, 3))
        exif = Image.Exif()
        exif[0x0112] = number % 8 + 1
        files.append(f"{number}.jpg")
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(files[-1], exif=exif)
    expected = [image.guesses[0].name for image in classifier.predict(files)]
    assert len(set(expected)) > 2
    for file in files:
        exec(compile(EXAMPLES[1].replace("a.jpg", file), "using-a-model.md", "exec"), {})
    assert capsys.readouterr().out.split() == expected
