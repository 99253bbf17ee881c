"""The compiled kernels and the name of the wheel that carries them. Everything else is in pyproject.toml.

The kernels are plain C without Python's or torch's headers, loaded through ctypes; an extension is only the way to have
them built and shipped. Optional: without a compiler the install succeeds and the eager path runs. So a wheel with
kernels is one for its platform and every Python, and one without (`LONGTAIL_KERNELS=0`) is for every platform.
"""

import os
import sysconfig

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

KERNELS = "src/longtail/nn/backends/cpu"
HEADERS = ["blocks.h", "compound_bn.h", "passes.h", "rows.h", "statistics.h", "vector.h"]
FLAGS = ["-O2", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=default", "-g0"]

# One build for each instruction set; `longtail.nn.backends.cpu.library` chooses among them at run time.
# The platform is the one that is built for, which _PYTHON_HOST_PLATFORM names in a cross build.
if os.environ.get("LONGTAIL_KERNELS") == "0":
    builds = {}
elif sysconfig.get_platform().endswith(("x86_64", "amd64")):
    builds = {
        "avx2": ["-mavx2", "-mfma", "-mprfchw"],
        "avx512": ["-mavx512f", "-mavx512vl", "-mavx512dq", "-mfma", "-mprfchw", "-DVL=16"],
    }
else:
    builds = {"native": []}


class BuildKernels(build_ext):
    """Names a library without the Python that it was built by."""

    def get_ext_filename(self, fullname: str) -> str:
        """The path of a library below the folder of the build."""
        return os.path.join(*fullname.split(".")) + ".so"  # noqa: PTH118 # setuptools joins it to others


class TagWheel(bdist_wheel):
    """Tags a wheel with its platform alone."""

    def get_tag(self) -> tuple[str, str, str]:
        """Python, ABI and platform."""
        return "py3", "none", super().get_tag()[2]


setup(
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": TagWheel},
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
    ],
)
