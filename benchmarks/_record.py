"""Write a measurement with what it takes to judge it: command, machine, versions, commit."""

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch

RESULTS = Path(__file__).parent / "results"


def write_result(name: str, payload: dict[str, object], command: str) -> Path:
    """Write `payload` to benchmarks/results/<name>.json and return the path."""
    record = {
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": current_commit(),
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "versions": {package: version(package) for package in ("torch", "torchvision", "numpy")},
        **payload,
    }
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def current_commit() -> str:
    """The commit measured, with a mark if anything but results had changed since."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False, cwd=RESULTS.parents[1])
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("-dirty" if changed else "")


def _cpu() -> str:
    """The processor's name and the vector instructions that matter."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor()
    fields = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in fields.items()}
    flags = set(fields.get("flags", "").split()) & {"avx2", "fma", "avx512f"}
    return f"{fields.get('model name', platform.processor())} ({', '.join(sorted(flags))})"
