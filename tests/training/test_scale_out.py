"""torchrun with gloo, as on a cluster: two ranks, two nodes, a rank that dies. All against one process."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from benchmarks.robustness.kill_and_resume import differences
from longtail.evaluation import read_metrics
from longtail.training.microbatches import write_note

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
    "0.001",
    "--method",
    "compound_bn",
]
# Ranks differ from one process by the order of sums, and training spreads that: few and small steps keep it small.
EPOCHS = 3
SHORT_OF_MEMORY = (str(Path(__file__).parents[1] / "support" / "short_of_memory.py"),)


def start(
    *launcher: str,
    out: Path,
    log: Path,
    program: Sequence[str] = ("-m", "longtail"),
    epochs: int = EPOCHS,
    more: Sequence[str] = (),
    **env: str,
) -> subprocess.Popen[bytes]:
    settings = [*SETTINGS, "--epochs", str(epochs), "--out", str(out), "--resume", "auto", *more]
    command = [*launcher, *program, "train", *settings]
    with log.open("wb") as file:
        return subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"} | env, stdout=file, stderr=file)


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


def test_ranks_of_which_one_runs_out_of_memory_agree_on_smaller_microbatches(tmp_path: Path) -> None:
    out, expected, log = tmp_path / "run", tmp_path / "expected", tmp_path / "log.txt"
    ranks = [*TORCHRUN, "--standalone", "--nproc-per-node=2"]
    # 32 images a rank do not fit, 16 do.
    process = start(*ranks, "--max-restarts=1", out=out, log=log, program=SHORT_OF_MEMORY, epochs=1, ROOM="20")
    finish(process, log)
    said = (out / "log.txt").read_text()
    assert "rank 1 is out of memory with 64 images a batch\n" in said
    assert f"torchrun starts all ranks again; with --out {out} --resume auto they go on with 2 micro-batches" in said
    assert "this is a fault of longtail" not in log.read_text()
    assert not list(out.glob("microbatches.*"))
    finish(start(*ranks, out=expected, log=log, epochs=1, more=["--set", "optim.accumulate=2"]), log)
    assert differences(expected, out) == []


def test_ranks_that_run_out_of_memory_in_the_smallest_microbatches_stop(tmp_path: Path) -> None:
    out, log = tmp_path / "run", tmp_path / "log.txt"
    out.mkdir()
    write_note(out, 1, 4)  # as two starts would have left it
    ranks = [*TORCHRUN, "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    process = start(*ranks, out=out, log=log, program=SHORT_OF_MEMORY, ROOM="0")
    assert process.wait(timeout=240) != 0
    assert "they go on with 8 micro-batches" in log.read_text()
    assert "rank 1 is out of memory with 64 images a batch in 8 micro-batches\n" in log.read_text()
    assert "use --batch-size 32, a smaller --image-size, or a smaller --model" in log.read_text()
    assert "exitcode  : 4" in log.read_text()  # torchrun's own is always 1
