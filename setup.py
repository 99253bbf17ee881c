"""The compiled kernels. Everything else is in pyproject.toml.

They are plain C without Python's or torch's headers, loaded through ctypes; an extension is only the way to have them
built and shipped. Optional: without a compiler the install succeeds and the eager path runs.
"""

import platform

from setuptools import Extension, setup

KERNELS = "src/longtail/nn/backends/cpu"
HEADERS = ["blocks.h", "compound_bn.h", "passes.h", "rows.h", "statistics.h", "vector.h"]
FLAGS = ["-O2", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=default"]

# One build for each instruction set; `longtail.nn.backends.cpu.library` chooses among them at run time.
if platform.machine() in {"x86_64", "AMD64"}:
    builds = {
        "avx2": ["-mavx2", "-mfma", "-mprfchw"],
        "avx512": ["-mavx512f", "-mavx512vl", "-mavx512dq", "-mfma", "-mprfchw", "-DVL=16"],
    }
else:
    builds = {"native": []}

setup(
    ext_modules=[
        Extension(
            f"longtail.nn.backends.cpu._compound_bn_{build}",
            sources=[f"{KERNELS}/compound_bn.c"],
            depends=[f"{KERNELS}/{header}" for header in HEADERS],
            extra_compile_args=FLAGS + flags,
            libraries=["m"],
            optional=True,
        )
        for build, flags in builds.items()
    ]
)
