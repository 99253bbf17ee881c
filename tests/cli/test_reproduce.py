"""`longtail reproduce`, with real runs on the digits."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from longtail.cli import run
from longtail.cli.reproduce import _needs
from longtail.reproduction.estimate import Estimates, in_words, share_done
from longtail.reproduction.plan import make_plan
from longtail.reproduction.run_outcome import read_outcome
from longtail.reproduction.tables import Entry, Table
from longtail.reproduction.write_outcome import make_page
from longtail.training import load_run

TINY = ["--data", "digits-lt:10", "--model", "resnet8"]
SMALL = ["--set", "image_size=8", "--set", "batch_size=128", "--set", "workers=0"]
ROWS = ["--rows", "baseline", "cbn"]
FIRST, SECOND = Path("digits-lt-10/baseline/seed-0"), Path("digits-lt-10/cbn/seed-0")


def command(out: Path, *more: str, epochs: int = 1) -> list[str]:
    return ["reproduce", "components", *TINY, *SMALL, *ROWS, "--epochs", str(epochs), "--out", str(out), *more]


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rows with two seeds."""
    out = tmp_path_factory.mktemp("reproduced") / "out"
    assert run(command(out, "--seeds", "0", "1")) == 0
    return out


def test_a_table_has_the_mean_over_the_seeds_of_what_the_runs_found(reproduced: Path) -> None:
    found = json.loads((reproduced / "reproduction.json").read_text())
    assert [entry["row"] for entry in found["entries"]] == ["baseline", "cbn"]
    for entry in found["entries"]:
        folders = [reproduced / "digits-lt-10" / entry["row"] / f"seed-{seed}" for seed in (0, 1)]
        values = [100 * (load_run(folder).metrics["top1"] or 0) for folder in folders]
        assert list(entry["ours"]["top1"]["values"].values()) == pytest.approx(values)
        assert entry["ours"]["top1"]["mean"] == pytest.approx(sum(values) / 2)
        assert [one["state"] for one in entry["runs"]] == ["finished", "finished"]
        assert [one["settings"]["seed"] for one in entry["runs"]] == [0, 1]


def test_what_is_finished_is_not_repeated_and_the_table_alone_is_the_same(
    reproduced: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted(reproduced.rglob("*.c*"))
    before = [file.stat().st_mtime_ns for file in files]
    page, content = ((reproduced / f"reproduction.{kind}").read_text() for kind in ("md", "json"))
    assert run(command(reproduced, "--seeds", "0", "1")) == 0
    said = capsys.readouterr()
    assert "all 4 runs are finished" in said.err
    assert "timing" not in said.err
    (reproduced / "reproduction.md").unlink()
    (reproduced / "reproduction.json").unlink()
    assert run(command(reproduced, "--seeds", "0", "1", "--table-only", "--json")) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(content)
    assert (reproduced / "reproduction.md").read_text() == page
    assert (reproduced / "reproduction.json").read_text() == content
    assert [file.stat().st_mtime_ns for file in files] == before


def test_the_output_says_what_a_quick_budget_is_worth(reproduced: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(reproduced, "--table-only")) == 0
    said = capsys.readouterr().out
    assert "Baseline + CBN" in said
    assert "the quick budget does not reproduce the paper's 400 epochs" in said
    assert "runs: resnet8, images of 8 x 8, 1 epoch, batches of 128" in said
    assert "the paper has no numbers on digits-lt:10 to compare with" in said
    assert "compound_bn uses the reading `measured`, which departs from the paper" in said


@pytest.mark.parametrize("reading", ["appendix", "text"])
def test_a_reading_of_the_paper_is_one_flag_away(
    reading: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(tmp_path / "out", "--reading", reading, "--dry-run")) == 0
    said = capsys.readouterr().out
    assert f"compound_bn uses the reading `{reading}`, " in said
    assert "measured" not in said
    assert said.count(f"--set method.reading={reading}") == 2


def test_a_dry_run_prints_commands_and_the_time_and_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(tmp_path / "out", "--dry-run")) == 0
    said = capsys.readouterr().out
    commands = [line for line in said.splitlines() if line.startswith("longtail train")]
    assert [shlex.split(line)[4] for line in commands] == [str(tmp_path / "out" / place) for place in (FIRST, SECOND)]
    assert "2 runs, about " in said
    assert run(command(tmp_path / "out", "--dry-run", "--json")) == 0
    planned = json.loads(capsys.readouterr().out)
    assert [one["command"] for one in planned["runs"]] == commands
    assert sum(one["seconds"] for one in planned["runs"]) == pytest.approx(planned["seconds"])
    assert planned["seconds"] > 0
    assert not (tmp_path / "out").exists()


def start(out: Path, *more: str) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-m", "longtail", *command(out, *more, epochs=200)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(file: Path, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 120
    while not file.exists():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_stopped_reproduction_is_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reproduced: Path
) -> None:
    out = tmp_path / "out"
    # Killed in the first run, then asked to stop: two processes, one folder.
    process = start(out)
    wait_for(out / FIRST / "last.ckpt", process)
    process.kill()
    process.communicate()
    process = start(out)
    wait_for(out / FIRST / "last.ckpt", process)
    for line in process.stderr or ():
        if line.startswith("epoch"):
            break
    process.send_signal(signal.SIGTERM)
    said = process.communicate()[1]
    assert process.returncode == 143, said
    assert "run the same command again to resume" in said
    log = (out / FIRST / "log.txt").read_text()
    assert log.count("started:") == 1
    assert log.count("resumed:") == 1
    assert not (out / SECOND).exists()
    # The table of what there is names what is missing, and another length is refused.
    assert run(command(out, "--table-only", "--json", epochs=200)) == 0
    states = [entry["runs"][0]["state"] for entry in json.loads(capsys.readouterr().out)["entries"]]
    assert states == ["not finished", "not started"]
    planned = make_plan(_digits_table(), out=out, seeds=[0], flags={"epochs": 200}).runs[0]
    assert 0 < share_done(planned) < 1
    assert run(command(out, epochs=100)) == 2
    assert "holds a run with other settings: epochs (200 to 100)" in capsys.readouterr().err
    # A run that was killed before its end is finished by the same command.
    short = tmp_path / "short"
    _copy_unfinished(reproduced / FIRST, short / FIRST)
    assert run(command(short)) == 0
    assert (short / FIRST / "predictions.csv").read_bytes() == (reproduced / FIRST / "predictions.csv").read_bytes()


def _copy_unfinished(finished: Path, to: Path) -> None:
    """A run as a kill after its last epoch leaves it."""
    to.mkdir(parents=True)
    for name in ("config.yaml", "last.ckpt", "metrics.csv", "log.txt"):
        shutil.copy(finished / name, to / name)


def test_a_run_that_fails_is_shown_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / FIRST).mkdir(parents=True)
    (tmp_path / FIRST / "last.ckpt").write_bytes(b"broken")
    assert run(command(tmp_path)) == 3
    said = capsys.readouterr()
    assert "continuing with the next run" in said.err
    assert "failed: " in said.out
    found = json.loads((tmp_path / "reproduction.json").read_text())
    assert [entry["runs"][0]["state"] for entry in found["entries"]] == ["failed", "finished"]
    assert found["entries"][0]["runs"][0]["exit_code"] == 3
    # Once mended, it is tried again.
    (tmp_path / FIRST / "last.ckpt").unlink()
    assert run(command(tmp_path)) == 0
    assert not (tmp_path / FIRST / "failed.json").exists()


def test_a_run_that_diverges_gives_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--set", "optim.lr=1e30", "--rows", "baseline"]
    assert run(command(tmp_path, *arguments, epochs=3)) == 5
    assert "failed: the loss is" in capsys.readouterr().out


def test_ctrl_c_is_heard_while_the_time_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = torch.optim.SGD.step

    def interrupted(self: torch.optim.SGD, *rest: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return step(self, *rest)

    monkeypatch.setattr(torch.optim.SGD, "step", interrupted)
    assert run(command(tmp_path / "out")) == 130
    assert "stopped before the first run" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


BASELINE = {"method": {"name": "compound_bn", "row": "baseline"}}


def _digits_table() -> Table:
    small = {"model": {"name": "resnet8"}, "image_size": 8, "batch_size": 128, "workers": 0}
    return Table("small", "two data sets", (Entry("baseline", "B", "digits-lt:10", "here", {}, BASELINE | small),))


def test_data_that_is_missing_is_named_and_its_rows_are_skipped(tmp_path: Path) -> None:
    table = _digits_table()
    other = Entry("other", "O", "imagenet-lt", "there", {"top1": 57.4}, BASELINE)
    both = Table("both", "two data sets", (*table.entries, other))
    plan = make_plan(both, out=tmp_path, flags={"root": str(tmp_path)})
    estimates = Estimates()
    needs = _needs(plan, estimates)
    assert needs == {"imagenet-lt": f"needs imagenet-lt in {tmp_path}"}
    assert estimates.seconds(plan.runs[1]) is None
    assert f"needs imagenet-lt in {tmp_path}" in make_page(plan, read_outcome(plan, needs)).lines[-1]


def test_the_paper_s_numbers_stand_beside_what_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "datasets", "--rows", "table 4", "--table-only", "--out", str(tmp_path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["TCM", "cifar10-lt:100", "all", "82.8", "–"] in lines
    ours = next(line for line in lines if line[:3] == ["Compound", "BN", "cifar100-lt:50"])
    assert ours[4:] == ["60.0", "–", "0/1", "not", "started", "[1]"]
    assert any(" ".join(line).startswith("[1] 60.0 in table 4 is 58.13 in table 2") for line in lines)


def test_the_list_says_how_long_each_table_takes(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--data", "digits-lt:10", "--model", "resnet8", "--set", "image_size=8", "--epochs", "5"]
    assert run(["reproduce", *arguments, "--set", "workers=0", "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert {row["name"]: row["runs"] for row in rows} == {
        "components": 5,
        "mixtures": 4,
        "backbones": 2,
        "rebalancing": 8,
        "datasets": 1,
    }
    assert all(row["seconds"] > 0 and row["unknown"] == 0 for row in rows)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["component"], 2, "did you mean components?"),
        (["components", "--rows", "cnb"], 2, "matches no row of components"),
        (["components", "--budget", "slow"], 2, "slow"),
        (["components", "--root", "nowhere"], 3, "components needs cifar10-lt:100"),
        (["components", "--data", "nowhere/"], 3, "nowhere"),
        (["components", *TINY, "--set", "method.component=2"], 2, "did you mean method.components?"),
        (["rebalancing", *TINY, "--epochs", "1"], 2, "epochs must be at least 2, one for each stage"),
    ],
)
def test_mistakes_are_answered_before_anything_runs(
    arguments: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["reproduce", *arguments]) == code
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert not Path("runs").exists()


def test_several_ranks_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run(["reproduce", "components"]) == 2
    assert "runs on one device" in capsys.readouterr().err


def test_durations_read_as_people_say_them() -> None:
    assert in_words(89) == "89 s"
    assert in_words(91) == "2 min"
