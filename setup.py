"""Builds the native kernels: one C source, a shared library for each build (kernel_builds.py).

It also installs edgeddl.pth, which makes `import chainer` work (edgeddl/chainer_import.py). All
other settings of the package are in setup.cfg. The libraries are not Python modules: ctypes loads
the one that fits the processor (edgeddl/kernels/library.py). Without a compiler the package is
complete but slow: it then uses the kernels in NumPy.
"""

import os
import platform
import runpy
import shlex
from pathlib import Path
from types import SimpleNamespace

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext

# isort: split
# Setuptools provides distutils, which Python no longer has.
from distutils.command.install_data import install_data

CSRC = Path("edgeddl/kernels/csrc")
# by its path: importing the package would require its dependencies
builds = SimpleNamespace(**runpy.run_path("edgeddl/kernel_builds.py"))
# more compiler flags, e.g. for sanitizers
MORE_FLAGS = shlex.split(os.environ.get("EDGEDDL_CFLAGS", ""))


class BuildLibraries(build_ext):
    """Compiles plain shared libraries instead of Python modules."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split("."))) + ".so"

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)  # a failed build must not leave an old library
        compiler = shlex.split(os.environ.get("CC", "cc"))
        flags = [*builds.COMMON_FLAGS, *ext.extra_compile_args, *MORE_FLAGS]
        self.spawn([*compiler, *flags, "-shared", "-o", str(target), *ext.sources, "-lm"])


class InstallBesidePackages(install_data):
    """Puts data files into site-packages, the only folder whose .pth files Python reads."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.install_dir = self.get_finalized_command("install").install_lib


class WithData(Distribution):
    """Editable installations install data files, too: they call `has_data`, which is missing."""

    def has_data(self) -> bool:
        return self.has_data_files()


setup(
    distclass=WithData,
    cmdclass={"build_ext": BuildLibraries, "install_data": InstallBesidePackages},
    data_files=["edgeddl/edgeddl.pth"],
    ext_modules=[
        Extension(
            f"edgeddl.kernels.{builds.library_name(name)}",
            sources=sorted(map(str, CSRC.glob("*.c"))),
            depends=sorted(map(str, CSRC.glob("*.h"))),
            extra_compile_args=list(build.flags),
            optional=True,
        )
        for name, build in builds.BUILDS.get(platform.machine(), {}).items()
    ],
)
