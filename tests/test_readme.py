"""What the README says can be done is done here."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from benchmarks.record import read_records
from benchmarks.studies.folders.front_page import PAGE, front_page
from benchmarks.studies.folders.table import HERE, fill
from longtail.cli import run
from tests.support.drawn_signs import write_sign_folders

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


COMMANDS = re.findall(r"^longtail .*$", "\n".join(blocks("sh")), flags=re.MULTILINE)


def test_every_line_of_the_shell_is_a_command_that_runs_here_but_for_the_installation() -> None:
    lines = {line for block in blocks("sh") for line in block.splitlines()}
    assert lines - set(COMMANDS) == {"pip install ."}


@pytest.fixture
def birds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with birds/ and new/, which are small drawings, as the working folder."""
    monkeypatch.chdir(tmp_path)
    write_sign_folders(tmp_path / "birds", 10)
    (tmp_path / "new").symlink_to(tmp_path / "birds" / "stop")
    (tmp_path / "birds" / "stop" / "000.png").rename(tmp_path / "birds" / "stop" / "1.jpg")
    return tmp_path


def test_the_commands_run_in_order_and_leave_what_the_table_says(birds: Path) -> None:
    assert len(COMMANDS) == 11
    for command in COMMANDS:
        _, *arguments = shlex.split(command, comments=True)
        assert run(arguments) == 0, command
    row = re.search(r"^\| In `runs/birds-1`.*?\n\n", README, flags=re.DOTALL | re.MULTILINE)
    assert row
    always = [line for line in row[0].strip().splitlines()[2:] if "if epochs were trained" not in line]
    assert len(always) == 5
    for name in re.findall(r"`([\w./-]+)`", "\n".join(line.split("|")[1] for line in always)):
        assert (birds / "runs" / "birds-1" / name).exists(), name


@pytest.mark.parametrize("code", blocks("python"))
def test_each_python_example_runs_as_it_stands(code: str, birds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "README.md", "exec"), {})
    scores, guess = capsys.readouterr().out.splitlines()
    assert 0 < float(scores.split()[0]) <= 1
    assert guess.split()[0] in "0123456789"
    assert (birds / "runs").is_dir()


@pytest.mark.parametrize("command", re.findall(r"`(make\s\w+)`", README))
def test_each_make_command_exists(command: str) -> None:
    # A dry run: it must not set up a second environment from within the tests.
    done = subprocess.run([*command.split(), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_table_is_made_of_the_committed_records() -> None:
    page = PAGE.read_text(encoding="utf-8")
    made = fill(page, front_page(read_records(HERE / "results.jsonl")))
    assert made == page, "run python -m benchmarks.studies.folders.front_page"


@pytest.mark.parametrize("name", [*re.findall(r"\]\(([\w./-]+)\)", README), "LICENSE"])
def test_each_file_that_is_linked_exists(name: str) -> None:
    assert (ROOT / name).exists()


def test_the_citation_names_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["preferred-citation"]["doi"] == "10.1145/3503161.3547805"
