import multiprocessing
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from longtail.data import open_dataset
from longtail.training import build_config
from longtail.training.speed import Speed, measure_speed

DATA = open_dataset("digits-lt:10")  # 486 training and 540 test images


def test_the_time_of_a_run_is_that_of_its_steps_and_evaluations() -> None:
    config = build_config({"data": "digits-lt:10", "epochs": 10, "batch_size": 100, "eval_every": 4})
    assert (len(DATA.train), len(DATA.val), len(DATA.test)) == (486, 0, 540)
    # 4 steps an epoch, 10 epochs; evaluated after epochs 4, 8 and 10.
    speed = Speed(((1.0, 1.0),), image=0.01)
    assert speed.seconds(config, DATA) == pytest.approx(10 * 4 + 3 * 540 * 0.01)
    # Eight epochs at a second a step, two at half a second.
    stages = Speed(((0.8, 1.0), (0.2, 0.5)), image=0.0)
    assert stages.seconds(config, DATA) == pytest.approx(8 * 4 + 2 * 4 * 0.5)


@pytest.mark.parametrize(
    ("method", "shares"),
    [
        ({"name": "erm"}, [1.0]),
        ({"name": "decoupled"}, [0.8, 0.2]),
    ],
)
def test_measuring_takes_real_steps_of_each_stage_and_leaves_nothing_behind(
    method: dict[str, str], shares: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    steps = 0
    step = torch.optim.SGD.step

    def count(self: torch.optim.SGD, *rest: Any) -> Any:
        nonlocal steps
        steps += 1
        return step(self, *rest)

    monkeypatch.setattr(torch.optim.SGD, "step", count)
    settings = {"data": "digits-lt:10", "model": {"name": "resnet8"}, "method": method, "epochs": 5}
    speed = measure_speed(build_config(settings | {"workers": 1, "batch_size": 64}), DATA)
    assert [share for share, _ in speed.stages] == pytest.approx(shares)
    assert all(step > 0 for _, step in speed.stages)
    assert speed.image > 0
    assert 2 * len(shares) <= steps <= 8 * len(shares)
    assert list(tmp_path.iterdir()) == []
    assert multiprocessing.active_children() == []


def test_a_plan_for_several_devices_is_measured_by_one_process() -> None:
    command = [sys.executable, "-m", "longtail", "train", "digits-lt:100", "--from-scratch", "--time", "5s"]
    command += ["--model", "resnet8", "--devices", "2", "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0
    assert "devices: 2" in done.stdout
    assert "MEMBER" not in done.stderr
