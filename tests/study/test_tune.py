"""Studies on the digits: shared, killed, resumed; judged on validation and never on test images."""

import csv
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import yaml
from optuna.storages import fail_stale_trials
from optuna.trial import FixedTrial, TrialState

from longtail._errors import DataError, UsageError
from longtail.cli import run
from longtail.data import open_dataset
from longtail.evaluation.report import StudyRecord, StudyTrial, render_study
from longtail.heads import HEADS, balanced_accuracy
from longtail.study.heartbeat import heartbeat
from longtail.study.open_storage import NAME, Identity, find_study, gone, make_study, open_storage
from longtail.study.score_training import Embedded, score_training, trial_config
from longtail.study.search_space import METHODS, SearchSpace, choose_choices
from longtail.study.tune import data_digest, tune
from longtail.study.write_study import importances, write_page, write_study
from longtail.training import Callback, RunConfig, build_config, load_run, train
from longtail.training.build import build_run
from longtail.training.stop_request import StoppedError

SETTINGS: dict[str, Any] = {
    "data": "digits-lt:10",
    "method": {"name": "erm", "loss": "balanced_softmax"},
    "model": {"name": "resnet8", "pretrained": False},
    "epochs": 2,
    "batch_size": 64,
    "workers": 0,
}


def config(**changes: Any) -> RunConfig:
    return build_config(SETTINGS | changes)


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "trials.csv").open() as lines:
        return list(csv.DictReader(lines))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies") / "digits"
    tune(config(), out=folder, minutes=30, trials=3)
    return folder


def test_a_study_ends_with_its_best_trial_trained(study: Path) -> None:
    found = rows(study)
    best = max((row for row in found if row["balanced"]), key=lambda row: float(row["balanced"]))
    trained = load_run(study / f"trial-{best['trial']}")
    settings = yaml.safe_load((trained.path / "config.yaml").read_text())
    assert settings["optim"]["lr"] == pytest.approx(float(best["lr"]))
    assert settings["optim"]["weight_decay"] == pytest.approx(float(best["weight_decay"]))
    # The run validates on the same images, so that it scores what its trial has scored.
    last = (trained.path / "metrics.csv").read_text().splitlines()
    measured = dict(zip(last[0].split(","), last[-1].split(","), strict=True))
    assert float(measured["val/balanced"]) == pytest.approx(float(best["balanced"]))
    again = yaml.safe_load((study / "best.yaml").read_text())
    assert {key: again[key] for key in ("optim", "epochs", "seed")} == {
        key: settings[key] for key in ("optim", "epochs", "seed")
    }


def test_the_time_kept_for_the_best_run_is_that_of_the_longest_trial(study: Path, tmp_path: Path) -> None:
    kept = []

    class Heard(Callback):
        def progress(self, what: str, done: int, total: int) -> None:
            if what.startswith("trial"):
                kept.append(total - done)  # of 30 minutes, the bar shows the seconds that are gone
                raise StoppedError(signal.SIGINT, "")

    shutil.copytree(study, tmp_path / "study")
    opened = find_study(open_storage(f"sqlite:///{tmp_path / 'study' / NAME}"), "digits")
    assert opened is not None
    longest = max(trial.duration.total_seconds() for trial in opened[0].trials if trial.duration)
    # There is time for the report and 1.2 times the longest trial, and no further trial begins.
    tune(config(), out=tmp_path / "study", name="digits", minutes=(15 + 1.2 * longest) / 60, callback=Heard())
    assert kept == []
    with pytest.raises(StoppedError):
        tune(config(), out=tmp_path / "study", name="digits", minutes=30, callback=Heard())
    assert kept


def test_the_first_trial_is_the_default(study: Path) -> None:
    first = rows(study)[0]
    assert (first["trial"], first["method"]) == ("0", "erm")
    assert float(first["lr"]) == config().optim.lr


def test_the_same_command_goes_on(study: Path) -> None:
    before = rows(study)
    found = tune(config(), out=study, minutes=30, trials=1)
    assert rows(study)[: len(before)] == before
    assert len(rows(study)) == len(before) + 1 == len([row for row in rows(study) if row["state"] != "failed"])
    assert found.run is not None


def test_a_trial_sees_no_test_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, int]] = []
    score = score_training

    def watched(base: Any, settings: Any, data: Any, *args: Any, **kwargs: Any) -> float:
        sizes.append((len(data.test), len(data.val)))
        return score(base, settings, data, *args, **kwargs)

    monkeypatch.setattr("longtail.study.tune.score_training", watched)
    tune(config(), out=tmp_path / "study", minutes=30, trials=1)
    assert [(test, bool(val)) for test, val in sizes] == [(0, True)]


def _work(folder: str, storage: str | None) -> None:
    tune(config(), out=Path(folder), minutes=30, trials=2, storage=storage, name="shared")


def test_two_processes_that_start_one_study_at_once_share_it(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'shared.db'}"
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_work, args=(str(tmp_path / name), storage)) for name in "ab"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    found = find_study(open_storage(storage), "shared")
    assert found is not None
    trials = found[0].trials
    assert sorted(trial.number for trial in trials) == [0, 1, 2, 3]
    assert len({json.dumps(trial.params, sort_keys=True) for trial in trials}) == 4
    assert [trial.params["lr"] for trial in trials].count(config().optim.lr) == 1  # one default


def _open(folder: str, start: Any, failed: Any) -> None:
    for number in range(6):
        start.wait()
        try:
            open_storage(f"sqlite:///{folder}/{number}.db")
        except Exception as error:
            failed.put(f"{number}: {error}")


def test_processes_that_share_the_folder_of_a_study_write_in_turn(study: Path, tmp_path: Path) -> None:
    opened = find_study(open_storage(f"sqlite:///{study / NAME}"), "digits")
    assert opened is not None
    failed = []

    def write() -> None:
        try:
            for _ in range(15):
                write_study(tmp_path, opened[0], lambda _: config())
        except DataError as error:
            failed.append(error)

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert failed == []
    assert rows(tmp_path) == rows(study)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["best.yaml", "trials.csv"]


def test_storages_that_several_processes_make_at_once_are_opened_by_all(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    start, failed = spawn.Barrier(3), spawn.Queue()
    workers = [spawn.Process(target=_open, args=(str(tmp_path), start, failed)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failed.empty(), failed.get()


def test_a_study_that_was_killed_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "longtail", "tune", "digits-lt:10", "--time", "30m", "--out", str(tmp_path / "s")]
    command += ["--method", "erm", "--model", "resnet8", "--from-scratch", "--epochs", "2", "--workers", "0"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 200
    while not (tmp_path / "s" / "trials.csv").exists() and time.monotonic() < end:
        time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = rows(tmp_path / "s")
    assert kept
    done = subprocess.run([*command, "--trials", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "going on after" in done.stderr
    assert rows(tmp_path / "s")[: len(kept)] == kept


def _die(url: str) -> None:
    """Ask for the first trial, and be killed in it."""
    storage = open_storage(url)
    study, _ = make_study(storage, "s", Identity("birds", "", {}, [], False), [{"lr": 0.25}])
    trial = study.ask()
    trial.suggest_float("lr", 0, 1)
    with heartbeat(storage, study, trial):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_trial_whose_process_was_killed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    worker = multiprocessing.get_context("spawn").Process(target=_die, args=(url,))
    worker.start()
    worker.join()
    assert worker.exitcode == -signal.SIGKILL
    monkeypatch.setattr("longtail.study.open_storage._BEAT", 1)
    monkeypatch.setattr("longtail.study.open_storage._GRACE", 2)
    storage = open_storage(url)
    found = find_study(storage, "s")
    assert found is not None
    study, end = found[0], time.monotonic() + 20
    while study.trials[0].state == TrialState.RUNNING and time.monotonic() < end:
        time.sleep(0.5)
        fail_stale_trials(study)
    trial = study.ask()
    assert (trial.number, trial.suggest_float("lr", 0, 1)) == (1, 0.25)
    with heartbeat(storage, study, trial):
        time.sleep(4)
        fail_stale_trials(study)
    assert [trial.state for trial in study.trials] == [TrialState.FAIL, TrialState.RUNNING]


def test_a_trial_that_ctrl_c_stopped_is_the_first_when_the_study_goes_on(tmp_path: Path) -> None:
    class Press(Callback):
        def progress(self, what: str, done: int, total: int) -> None:
            del done, total
            if what.startswith("trial"):
                threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()

    long = config(epochs=200)
    with pytest.raises(StoppedError):
        tune(long, out=tmp_path, minutes=30, callback=Press())
    assert [(row["state"], row["error"]) for row in rows(tmp_path)] == [("failed", "its process was stopped")]
    found = find_study(open_storage(f"sqlite:///{tmp_path / NAME}"), tmp_path.name)
    assert found is not None
    values = SearchSpace(long, METHODS).default()
    assert values["method"] == rows(tmp_path)[0]["method"]
    (waits,) = found[0].get_trials(states=(TrialState.WAITING,))
    assert waits.system_attrs["fixed_params"] == values


class Ask(Callback):
    """Sends Ctrl-C when the second trial begins."""

    def __init__(self) -> None:
        self.shown = 0

    def progress(self, what: str, done: int, total: int) -> None:
        del done, total
        self.shown += what.startswith("trial")
        if self.shown == 2:
            os.kill(os.getpid(), signal.SIGINT)


def test_a_study_that_is_stopped_says_how_to_use_it_and_go_on(tmp_path: Path) -> None:
    with pytest.raises(StoppedError, match=r"stopped after 1 trial: they are kept") as caught:
        tune(config(), out=tmp_path, minutes=30, callback=Ask())
    assert caught.value.exit_code == 130
    assert f"longtail train --config {tmp_path / 'best.yaml'}" in caught.value.why
    assert len(rows(tmp_path)) >= 1


def test_a_study_is_refused_on_other_data_or_by_another_version(study: Path) -> None:
    with pytest.raises(DataError, match="is of another data set"):
        tune(config(data="digits-lt:20"), out=study, minutes=30, trials=1)
    found = find_study(open_storage(f"sqlite:///{study / NAME}"), study.name)
    assert found is not None
    kept = found[0].user_attrs["longtail"]
    found[0].set_user_attr("longtail", json.dumps(json.loads(kept) | {"longtail": "9.9"}))
    with pytest.raises(DataError, match=r"is of longtail 9\.9, this is"):
        tune(config(), out=study, minutes=30, trials=1)
    found[0].set_user_attr("longtail", kept)


def test_a_storage_that_is_gone_is_a_clear_line(study: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the folder of the storage"):
        open_storage(f"sqlite:///{tmp_path / 'nowhere' / 'study.db'}")
    with pytest.raises(UsageError, match="must be the URL of a database"):
        open_storage("study.db")
    (tmp_path / "torn.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(DataError, match="the storage of the study is gone"):
        open_storage(f"sqlite:///{tmp_path / 'torn.db'}")
    with pytest.raises((DataError, UsageError), match="storage"):
        open_storage("postgresql://127.0.0.1:9/none")
    (tmp_path / "trials.csv").write_bytes((study / "trials.csv").read_bytes())
    with pytest.raises(DataError, match="the storage of the study is gone"):
        tune(config(), out=tmp_path, minutes=30)


class Remove(Callback):
    """Removes the storage when the second trial begins."""

    def __init__(self, file: Path) -> None:
        self.file, self.shown = file, 0

    def progress(self, what: str, done: int, total: int) -> None:
        del done, total
        self.shown += what.startswith("trial")
        if self.shown == 2:
            self.file.unlink()


def test_a_storage_that_goes_while_it_is_used_leaves_what_was_found(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the storage of the study is gone"):
        tune(config(), out=tmp_path, minutes=30, callback=Remove(tmp_path / NAME))
    assert rows(tmp_path)[0]["state"] == "complete"
    assert yaml.safe_load((tmp_path / "best.yaml").read_text())["data"] == "digits-lt:10"


def test_the_password_of_a_server_is_neither_shown_nor_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql+psycopg://me:secret@127.0.0.1:1/tune"
    error = gone(url, f"no connection by {url}")
    assert "secret" not in str(error)
    assert "postgresql+psycopg://me:***@127.0.0.1:1/tune" in str(error)
    monkeypatch.setattr("sys.argv", ["longtail", "tune", "digits-lt", "--storage", url])
    train(config(epochs=1), out=tmp_path)
    kept = [file for file in tmp_path.rglob("*") if file.is_file() and b"secret" in file.read_bytes()]
    assert kept == []
    assert "me:***@127" in (tmp_path / "log.txt").read_text()


def test_the_digest_is_of_images_and_labels_wherever_they_are() -> None:
    one, same, other = (open_dataset(name) for name in ("digits-lt:10", "digits-lt:10", "digits-lt:20"))
    assert data_digest(one) == data_digest(same) != data_digest(other)


@pytest.mark.parametrize("head", sorted(HEADS))
def test_each_head_of_the_space_is_built_from_what_is_suggested(head: str) -> None:
    base = build_config({"head": {"name": "linear"}, "method": {"name": "fine_tune"}, "epochs": 0})
    if head not in choose_choices(base, (), pinned=None):
        with pytest.raises(UsageError, match="cannot be searched"):
            choose_choices(base, (head,), pinned=None)
        return
    space = SearchSpace(base, (head,))
    trial = optuna.create_study().ask()
    settings = dict(space.suggest(trial)["head"])
    assert settings.pop("name") == head
    HEADS[head]([3, 2], **settings)
    for values in space.first():
        HEADS[head](
            [3, 2], **{key: value for key, value in space.suggest(FixedTrial(values))["head"].items() if key != "name"}
        )


@pytest.mark.parametrize("method", METHODS)
def test_each_method_of_the_space_builds_its_run(method: str) -> None:
    settings = SearchSpace(config(), (method,)).suggest(optuna.create_study().ask())
    assert build_run(trial_config(config(), settings)).config.optim.lr == settings["optim"]["lr"]


def test_a_head_is_scored_as_cross_validation_by_hand_scores_it() -> None:
    import torch

    generator = np.random.default_rng(0)
    target = np.repeat(np.arange(3), [40, 12, 8])
    features = torch.from_numpy(generator.normal(size=(60, 5)) + np.eye(3, 5)[target] * 2).float()
    fold = np.arange(60) % 4
    steps: list[float] = []
    embedded = Embedded(features, torch.from_numpy(target), fold, 4, 3)
    score = embedded.score({"name": "crt", "weight_decay": 0.1}, lambda _, value: steps.append(value))
    right = np.zeros(60, bool)
    for number in range(4):
        inside, outside = fold != number, fold == number
        settings: dict[str, Any] = {"weight_decay": 0.1}
        head = HEADS["crt"](np.bincount(target[inside]).tolist(), **settings)
        fitted = head.fit(features[inside], torch.from_numpy(target[inside]))
        right[outside] = fitted(features[outside]).argmax(1).numpy() == target[outside]
    assert score == steps[-1] == pytest.approx(np.mean([right[target == k].mean() for k in range(3)]))
    assert len(steps) == 4
    assert score == balanced_accuracy(right, target)


def test_the_value_that_alone_decides_is_the_important_one() -> None:
    generator = np.random.default_rng(0)
    made = optuna.create_study(direction="maximize")
    bounds = {name: optuna.distributions.FloatDistribution(0, 1) for name in ("decides", "does_nothing")}
    for _ in range(40):
        values = {name: float(generator.uniform()) for name in bounds}
        made.add_trial(optuna.create_trial(value=values["decides"], params=values, distributions=dict(bounds)))
    shares = importances(made.trials, None)["all trials"]
    assert shares["decides"] > 0.9
    assert sum(shares.values()) == pytest.approx(1)
    assert importances(made.trials[:3], None) == {}


def test_the_page_names_the_best_and_escapes_what_strangers_wrote() -> None:
    bad = "<img src=x onerror=alert(1)>"
    trials = [StudyTrial(n, "complete", 0.5 + n / 10, {"lr": 0.1, "method": bad}, 1.0) for n in range(3)]
    trials.append(StudyTrial(3, "pruned", 0.2, {"lr": 0.3}, None, bad))
    record = StudyRecord(
        bad, bad, "60 validation images", 2, "trial-2", trials, {"all trials": {"lr": 0.75, bad: 0.25}}
    )
    page = render_study(record)
    assert "<img" not in page
    assert "The best is trial 2, with 70.0&nbsp;% balanced accuracy" in page
    assert "3 trials finished, 1 pruned" in page


def test_each_choice_shows_how_many_of_its_trials_were_pruned(tmp_path: Path) -> None:
    made = optuna.create_study(direction="maximize")
    heads = {"head": optuna.distributions.CategoricalDistribution(["linear", "cosine"])}
    for head, state in (("linear", "COMPLETE"), ("linear", "PRUNED"), ("cosine", "PRUNED")):
        value = 0.5 if state == "COMPLETE" else None
        params: dict[str, Any] = {"params": {"head": head}, "distributions": heads}
        made.add_trial(
            optuna.create_trial(value=value, state=TrialState[state], intermediate_values={0: 0.4}, **params)
        )
    page = write_page(tmp_path, made, judge="folds", data="birds", best=tmp_path).read_text()
    table = re.findall(r"<tr><th scope=\"row\">(\w+)</th>(.*?)</tr>", page)
    cells = {name: re.findall(r">([^<]+)</td>", row) for name, row in table}
    assert cells == {"linear": ["2", "1", "50.0", "50.0"], "cosine": ["1", "0", "–", "–"]}


def test_mistakes_are_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "s")]
    for arguments, message in (
        (["digits-lt", "--trials", "0"], "trials must be at least 1, got 0"),
        (["digits-lt", "--time", "soon"], "time must be a duration, got 'soon'"),
        (["digits-lt", "--search", "lineer"], "head 'lineer' cannot be searched"),
        (["digits-lt", "--storage", "study.db"], "--storage must be the URL of a database"),
    ):
        assert run(["tune", *arguments, *out]) == 2
        assert message in capsys.readouterr().err
