"""What the README says can be done is done here."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from longtail.cli import run

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("code", blocks("python"))
def test_each_python_example_runs_as_it_stands(code: str) -> None:
    exec(compile(code, "README.md", "exec"), {})


@pytest.mark.parametrize("command", re.findall(r"^make \w+", "\n".join(blocks("sh")), flags=re.MULTILINE))
def test_each_make_command_exists(command: str) -> None:
    # A dry run: it must not set up a second environment from within the tests.
    done = subprocess.run([*command.split(), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", re.findall(r"^longtail (\w+)", "\n".join(blocks("sh")), flags=re.MULTILINE))
def test_each_longtail_command_exists(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    assert f"Usage: longtail {command}" in capsys.readouterr().out


@pytest.mark.parametrize("name", [*re.findall(r"\]\(([\w./-]+)\)", README), "LICENSE"])
def test_each_file_that_is_linked_exists(name: str) -> None:
    assert (ROOT / name).exists()


def test_the_citation_names_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["preferred-citation"]["doi"] == "10.1145/3503161.3547805"
