"""What docs/using-a-model.md says can be done is done here."""

import re
import shlex
from pathlib import Path

import pytest

import longtail
from longtail.cli import build_app

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
