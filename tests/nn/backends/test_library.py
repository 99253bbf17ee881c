import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from longtail.nn.backends.cpu import library

COMPILER = shutil.which(os.environ.get("CC", "cc"))


@pytest.fixture
def fresh() -> Iterator[None]:
    """Loads the library anew, and puts it back afterwards."""
    library.load.cache_clear()
    yield
    library.load.cache_clear()


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
@pytest.mark.skipif(os.environ.get(library.ENVIRONMENT_VARIABLE) == "0", reason="the kernels are turned off")
def test_the_kernels_are_built_where_there_is_a_compiler() -> None:
    assert library.load() is not None


@pytest.mark.usefixtures("fresh")
def test_an_environment_variable_turns_the_kernels_off_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library.ENVIRONMENT_VARIABLE, "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert library.load() is None


@pytest.mark.usefixtures("fresh")
def test_an_install_without_kernels_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(library.ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setattr(library, "_builds", lambda: ["for_no_machine"])
    with pytest.warns(UserWarning, match="installed without its compiled kernels"):
        assert library.load() is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert library.load() is None


@pytest.mark.skipif(library.load() is None, reason="the kernels are turned off or were not built")
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_the_kernels_use_the_threads_of_torch_and_start_no_others() -> None:
    code = """
import os, torch
from longtail.nn import CompoundBatchNorm2d
torch.set_num_threads(2)
x = torch.randn(64, 16, 32, 32)
torch.randn(1 << 20).add_(1).sum()
before = len(os.listdir("/proc/self/task"))
norm = CompoundBatchNorm2d(16)
for _ in range(3):
    norm(x)
print(len(os.listdir("/proc/self/task")) - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"


def test_libraries_in_a_folder_with_blanks_are_found_and_none_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    installed = tmp_path / "my own  tools" / "libgomp.so.1"
    installed.parent.mkdir()
    for file in (installed, tmp_path / "libgomp.so.1", tmp_path / "tools" / "libgomp.so.1"):
        file.parent.mkdir(exist_ok=True)
        file.touch()
    columns = "7f00-7f01 r-xp 00000000 08:01 123                        "
    found = (
        installed,
        "libgomp.so.1",
        "tools/libgomp.so.1",
        "[heap]",
        f"{tmp_path / 'gone' / 'libgomp.so.1'} (deleted)",
    )
    maps = "\n".join([*(f"{columns}{path}" for path in found), "7f02-7f03 rw-p 00000000 00:00 0", ""])
    assert library.loaded_libraries(maps) == {installed}
