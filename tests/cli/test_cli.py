import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from longtail.cli import COMMANDS, run

# What must answer at once; each with its exit code.
QUICK = [
    ([], 0),
    (["--help"], 0),
    (["--version"], 0),
    (["check", "--help"], 0),
    (["chek"], 2),
    (["check"], 2),
    (["check", "--ful", "birds"], 2),
    (["check", "birds", "--seed", "one"], 2),
    (["predict", "--help"], 0),
    (["predict", "run"], 2),
    (["export", "run", "--format", "pickle"], 2),
    (["report"], 2),
    (["evaluate", "run", "--shots", "many"], 2),
    (["reproduce", "--help"], 0),
    (["reproduce", "component"], 2),
]


@pytest.mark.parametrize(("arguments", "code"), QUICK)
def test_help_and_usage_errors_import_neither_torch_nor_numpy(arguments: list[str], code: int) -> None:
    script = (
        "import sys\nfrom longtail.cli import run\n"
        f"code = run({arguments!r})\n"
        "heavy = {'torch', 'numpy', 'PIL', 'lightning', 'sklearn'} & sys.modules.keys()\n"
        "sys.exit(99 if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert (done.stdout if code == 0 else done.stderr).strip()


def test_help_and_typos_answer_in_half_a_second() -> None:
    def seconds(*arguments: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "longtail", *arguments], capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # The processor's time, and the best of some, because other tests run at the same time.
    assert any(seconds("--help") < 0.5 for _ in range(10))
    assert any(seconds("chek") < 0.5 for _ in range(10))


@pytest.mark.skipif(sys.platform != "linux", reason="torch brings GNU's OpenMP, which prints this, on Linux alone")
@pytest.mark.parametrize(("asked", "turns"), [({}, "0"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "30000000000")])
def test_threads_that_wait_leave_the_processor_to_others(asked: dict[str, str], turns: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-m", "longtail", "doctor"],
        capture_output=True,
        text=True,
        env=environment | asked | {"OMP_DISPLAY_ENV": "verbose"},
        check=True,
    )
    assert f"GOMP_SPINCOUNT = '{turns}'" in done.stderr


def test_a_typo_gets_the_nearest_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["chek", "birds"]) == 2
    assert 'Did you mean "check"?' in " ".join(capsys.readouterr().err.split())
    assert run(["check", "birds", "--stric"]) == 2
    assert "Did you mean --strict?" in " ".join(capsys.readouterr().err.split())


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    done = subprocess.run([sys.executable, "-m", "longtail", "chek"], capture_output=True, text=True, check=False)
    assert "chek" in done.stderr
    assert "\x1b[3" not in done.stderr  # no colour; bold may stay


def test_every_command_can_be_imported_and_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        assert run([name, "--help"]) == 0
        assert COMMANDS[name][1].split(",")[0].split(".")[0] in capsys.readouterr().out


def test_a_bug_keeps_its_traceback_in_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(COMMANDS, "break", ("tests.support.failing_commands:fail", "Break."))
    assert run(["break"]) == 1
    error = capsys.readouterr().err
    assert "ZeroDivisionError" in error
    assert "Traceback" not in error
    path = error.strip().rsplit(" ", 1)[1]
    assert "Traceback" in Path(path).read_text()
    Path(path).unlink()


def test_ctrl_c_leaves_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(COMMANDS, "stop", ("tests.support.failing_commands:interrupted", "Stop."))
    assert run(["stop"]) == 130
    assert capsys.readouterr().err == "longtail: stopped\n"


@pytest.mark.parametrize("how", ["wait", "wait_in_a_destructor"])  # which swallows exceptions
def test_a_termination_cleans_up_and_leaves_with_143(how: str, tmp_path: Path) -> None:
    script = (
        "import sys\nfrom longtail.cli import COMMANDS, main\n"
        f"COMMANDS['wait'] = ('tests.support.failing_commands:{how}', 'Wait.')\n"
        f"sys.argv = ['longtail', 'wait', {str(tmp_path / 'busy')!r}]\nmain()"
    )
    process = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[2])
    while not (tmp_path / "busy").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.terminate()
    assert process.wait(timeout=20) == 143
    assert not (tmp_path / "busy").exists()


def test_a_reader_that_leaves_early_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m longtail --help | true",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
def test_an_error_that_cannot_be_written_keeps_its_exit_code() -> None:
    command = f"{sys.executable} -m longtail check nosuch 2> /dev/full > /dev/full"
    assert subprocess.run(command, shell=True, check=False).returncode == 3


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no limit of addresses")
def test_a_limit_of_memory_below_what_libraries_need_is_exit_code_4() -> None:
    command = f"ulimit -v 400000; OMP_NUM_THREADS=1 {sys.executable} -m longtail train digits-lt --dry-run"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-3]) == (4, "longtail: there is not enough memory")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
@pytest.mark.parametrize(("output", "code"), [("> /dev/full", 3), (">&-", 0)])
def test_a_full_stdout_is_an_error_of_the_system_and_a_closed_one_is_none(output: str, code: int) -> None:
    command = f"{sys.executable} -m longtail list methods {output}"
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == code
    assert done.stderr.startswith("longtail: the output: No space left on device\n" if code else "")


def test_a_warning_of_ours_is_a_plain_line() -> None:
    code = (
        "import sys; from longtail.nn.backends.cpu import library; library._builds = tuple; "
        "sys.argv = ['longtail', 'doctor']; from longtail.cli import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = [line for line in ended.stderr.splitlines() if "compiled kernels" in line]
    assert len(lines) == 1
    assert lines[0].startswith("note: longtail was installed without its compiled kernels")
    assert ".py" not in ended.stderr
