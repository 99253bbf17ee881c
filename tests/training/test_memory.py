import ctypes
import subprocess
import sys

import pytest

from longtail.training.memory import keep_freed_memory

FAULTS = """
import resource, sys, torch
from longtail.training.memory import keep_freed_memory

if "keep" in sys.argv:
    assert keep_freed_memory()

def step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(1 << 20) for _ in range(40)]  # 4 MiB each
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print([step() for _ in range(6)][-1])
"""


def page_faults(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    command = [sys.executable, "-c", FAULTS, *arguments]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(
    not (sys.platform == "linux" and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")),
    reason="the C library is not glibc",
)
def test_a_later_step_takes_the_memory_of_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert page_faults(monkeypatch) > 1000
    assert page_faults(monkeypatch, "keep") < 100


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_what_the_environment_says_is_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1000000")
    assert not keep_freed_memory()
