"""One line of JSON for each measurement, with what it takes to judge and repeat it.

A line has the command, date, commit, machine, versions, the resolved settings, the seed and the metrics, and labels
by which tables find it. Lines are only ever appended, so several processes may write to one file.
"""

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]


def append_record(
    file: Path,
    *,
    command: str,
    settings: Mapping[str, Any],
    metrics: Mapping[str, Any],
    seed: int | None = None,
    commit: str | None = None,
    labels: Mapping[str, Any] | None = None,
) -> None:
    """Append one measurement to `file`.

    Args:
        file: the `.jsonl` file; made if there is none.
        command: repeats the measurement, from the root of the repository.
        settings: all that was settled before the measurement, defaults resolved.
        metrics: what was measured.
        seed: of a run; None where there is none.
        commit: at which the measurement started. Defaults to the current one.
        labels: further keys of the line, such as the benchmark's name.
    """
    line = {
        "command": command,
        "runnable": True,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit or current_commit(),
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "versions": {package: version(package) for package in ("torch", "torchvision", "numpy")},
        **(labels or {}),
        "seed": seed,
        "settings": dict(settings),
        "metrics": dict(metrics),
    }
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


def read_records(file: Path) -> list[dict[str, Any]]:
    """The lines of a file, the oldest first; none if there is no file."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def current_commit() -> str:
    """The commit measured, marked `-dirty` if anything but records has changed since."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!*.jsonl")
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
