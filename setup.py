"""Builds the native kernels: one C source, a shared library for each kind of processor.

It also installs edgeddl.pth, by which `import chainer` works (edgeddl/chainer_import.py).
Everything else about the package stands in setup.cfg. The libraries are no Python modules: ctypes
loads the one that fits the processor (edgeddl/kernels/native/library.py). Without a compiler the
package is complete but slow: the kernels are then NumPy's.
"""

import os
import platform
import shlex
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext

# isort: split
# Setuptools brings distutils with it, which Python has no longer.
from distutils.command.install_data import install_data

CSRC = Path("edgeddl/kernels/csrc")
FLAGS = ["-std=gnu11", "-O3", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-pthread"]
# no trapping, no errno: comparisons and square roots may become vector instructions
FLAGS += ["-fno-math-errno", "-fno-trapping-math"]
BUILDS = {
    "x86_64": {
        "generic": [],
        "avx2": ["-mavx2", "-mfma", "-mtune=haswell"],
        "avx512": [
            *("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma"),
            *("-mtune=skylake-avx512", "-mprefer-vector-width=512"),
        ],
    },
    "aarch64": {
        "generic": [],
        "cortex_a72": ["-mcpu=cortex-a72", "-DEDGEDDL_CORTEX_A72"],
    },
}
# compiler flags for sanitizer builds and the like
MORE_FLAGS = shlex.split(os.environ.get("EDGEDDL_CFLAGS", ""))


class BuildLibraries(build_ext):
    """Compiles plain shared libraries where setuptools would make Python modules."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split("."))) + ".so"

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)  # what does not compile must not leave an old library
        compiler = shlex.split(os.environ.get("CC", "cc"))
        flags = [*FLAGS, *ext.extra_compile_args, *MORE_FLAGS]
        self.spawn([*compiler, *flags, "-shared", "-o", str(target), *ext.sources, "-lm"])


class InstallBesidePackages(install_data):
    """Puts data files into site-packages, the only folder whose .pth files Python reads."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.install_dir = self.get_finalized_command("install").install_lib


class WithData(Distribution):
    """Also editable installations install data files: they ask for `has_data`, which is missing."""

    def has_data(self) -> bool:
        return self.has_data_files()


setup(
    distclass=WithData,
    cmdclass={"build_ext": BuildLibraries, "install_data": InstallBesidePackages},
    data_files=["edgeddl/edgeddl.pth"],
    ext_modules=[
        Extension(
            f"edgeddl.kernels.native.libedgeddl_{build}",
            sources=sorted(map(str, CSRC.glob("*.c"))),
            depends=sorted(map(str, CSRC.glob("*.h"))),
            extra_compile_args=flags,
            optional=True,
        )
        for build, flags in BUILDS.get(platform.machine(), {}).items()
    ],
)
