"""torchrun with gloo, as on a cluster: two ranks, two nodes, a rank that dies. All against one process."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from longtail.evaluation import read_metrics

TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
SETTINGS = [
    "digits-lt:10",
    "--model",
    "resnet8",
    "--batch-size",
    "64",
    "--workers",
    "0",
    "--set",
    "checkpoint_steps=1",
    "--lr",
    "0.01",
]
# Ranks differ from one process by the order of sums, and training spreads that: few and small steps keep it small.
EPOCHS = 3


def start(*launcher: str, out: Path, log: Path) -> subprocess.Popen[bytes]:
    settings = [*SETTINGS, "--epochs", str(EPOCHS), "--out", str(out), "--resume", "auto"]
    command = [*launcher, "-m", "longtail", "train", *settings]
    with log.open("wb") as file:
        return subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=file, stderr=file)


def finish(process: subprocess.Popen[bytes], log: Path) -> None:
    assert process.wait(timeout=240) == 0, log.read_text()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    finish(start(sys.executable, out=folder / "run", log=folder / "log.txt"), folder / "log.txt")
    return folder / "run"


def assert_same_training(ours: Path, alone: Path) -> None:
    """The loss curve and the buffers, within the error of sums in another order."""
    for row, expected in zip(read_metrics(ours / "metrics.csv"), read_metrics(alone / "metrics.csv"), strict=True):
        assert row["train/loss"] == pytest.approx(expected["train/loss"], rel=1e-4)
    weights, expected_weights = (load_file(run / "model" / "model.safetensors") for run in (ours, alone))
    for name, tensor in weights.items():
        assert_close(tensor, expected_weights[name], rtol=1e-3, atol=1e-3)


def rank_process(launcher: int, rank: int) -> psutil.Process | None:
    for child in psutil.Process(launcher).children(recursive=True):
        try:
            if child.environ().get("RANK") == str(rank):
                return child
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return None


def test_two_ranks_of_which_one_dies_train_as_one_process(alone: Path, tmp_path: Path) -> None:
    out, log = tmp_path / "run", tmp_path / "log.txt"
    process = start(*TORCHRUN, "--standalone", "--nproc-per-node=2", "--max-restarts=2", out=out, log=log)
    while not (out / "last.ckpt").exists() and process.poll() is None:
        time.sleep(0.02)
    victim = rank_process(process.pid, 1)
    assert victim is not None, log.read_text()
    victim.kill()
    finish(process, log)
    assert "resumed" in (out / "log.txt").read_text()
    assert_same_training(out, alone)


def test_two_nodes_with_their_own_rendezvous_train_as_one_process(alone: Path, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    rendezvous = [
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{port}",
        "--rdzv-id=test",
        "--local-addr=127.0.0.1",
    ]
    nodes = [
        start(
            *TORCHRUN, "--nnodes=2", "--nproc-per-node=1", *rendezvous, out=tmp_path / "run", log=tmp_path / f"{n}.txt"
        )
        for n in (0, 1)
    ]
    for n, node in enumerate(nodes):
        finish(node, tmp_path / f"{n}.txt")
    assert_same_training(tmp_path / "run", alone)
