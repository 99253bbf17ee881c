"""The compiled kernels, loaded through ctypes: which build this CPU takes, and the structures that it is handed.

The package's build compiles `compound_bn.c` once for each instruction set worth it (see setup.py), and the one to load
is chosen here, at run time. Without a compiler there is none, and the eager path runs.
"""

import ctypes
import functools
import os
import platform
import warnings
from pathlib import Path

import torch

from longtail.nn.backends.cpu.structure import NO_MEMORY, BackwardStructure, ForwardStructure

MAX_COMPONENTS = 8
ENVIRONMENT_VARIABLE = "LONGTAIL_KERNELS"


class Library:
    """The entry points of one build."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        if self._library.longtail_structures() != ctypes.sizeof(ForwardStructure) << 16 | ctypes.sizeof(
            BackwardStructure
        ):
            raise RuntimeError(f"{path} was built from other sources than those beside it; install longtail again")
        self._forward = self._library.longtail_forward
        self._backward = self._library.longtail_backward
        self._forward.argtypes = [ctypes.POINTER(ForwardStructure), ctypes.c_int]
        self._backward.argtypes = [ctypes.POINTER(BackwardStructure), ctypes.c_int]
        runtime = _thread_runtime()
        if runtime is not None:
            self._library.longtail_set_parallel(ctypes.cast(runtime.GOMP_parallel, ctypes.c_void_p))

    def forward(self, arguments: ForwardStructure, steps: int) -> int:
        """Run some steps of the forward pass; returns DONE or REFUSED."""
        return self._done(self._forward(arguments, steps))

    def backward(self, arguments: BackwardStructure, steps: int) -> None:
        """Run some steps of the backward pass."""
        self._done(self._backward(arguments, steps))

    def _done(self, result: int) -> int:
        if result == NO_MEMORY:
            raise MemoryError("the kernel of compound batch norm got no memory for its scratch space")
        return result


def turned_off() -> bool:
    """Whether the environment says to run the eager path."""
    return os.environ.get(ENVIRONMENT_VARIABLE) == "0"


@functools.cache
def load() -> Library | None:
    """The kernels for this CPU; None if they were turned off or not built. Says once that they are missing."""
    if turned_off():
        return None
    for build in _builds():
        for path in Path(__file__).parent.glob(f"_compound_bn_{build}.*"):
            if path.suffix in {".so", ".dylib"}:
                return Library(path)
    warnings.warn(
        "longtail was installed without its compiled kernels (no C compiler was found, or not for this CPU): compound "
        "batch norm runs its eager path, which is slower and gives the same results. Install a C compiler and longtail "
        f"again, or set {ENVIRONMENT_VARIABLE}=0 to be told no more.",
        stacklevel=2,
    )
    return None


def _builds() -> list[str]:
    """The builds that this CPU can run, best first."""
    if platform.machine() not in {"x86_64", "AMD64"}:
        return ["native"]
    capability = torch.backends.cpu.get_cpu_capability()
    return [build for build, wants in (("avx512", "AVX512"), ("avx2", "AVX")) if capability.startswith(wants)]


def loaded_libraries(maps: str) -> set[Path]:
    """The shared libraries that `/proc/self/maps` lists, by their absolute paths.

    Five columns stand before a path, which may hold blanks itself. A relative path would be looked for in the current
    folder, or wherever the linker searches: it is left out, as is a file that is gone.
    """
    columns = (line.split(maxsplit=5) for line in maps.split("\n"))
    paths = {Path(parts[5].rstrip()) for parts in columns if len(parts) == 6}
    return {path for path in paths if path.is_absolute() and ".so" in path.name and path.is_file()}


def _thread_runtime() -> ctypes.CDLL | None:
    """The OpenMP runtime whose threads torch uses: a second one would fight it for the cores. None: one thread."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    loaded = loaded_libraries(maps.read_text(encoding="utf-8", errors="surrogateescape"))
    runtimes = [path for path in loaded if path.name.startswith(("libgomp", "libomp", "libiomp"))]
    torchs_own = Path(torch.__file__).parent / "lib"
    for path in sorted(runtimes, key=lambda path: (path.parent != torchs_own, str(path))):
        runtime = ctypes.CDLL(str(path))
        if hasattr(runtime, "GOMP_parallel"):  # libomp and libiomp have it too, for gcc's sake
            return runtime
    return None
