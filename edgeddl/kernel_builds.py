"""The builds of the native kernels: names, compiler flags and required CPU features.

setup.py compiles them, kernels/library.py loads the best one that the processor can run, and
config.py accepts their names in $EDGEDDL_CPU. This module imports nothing of edgeddl, so setup.py
can run it before anything is installed.
"""

from typing import NamedTuple

COMMON_FLAGS = (
    *("-std=gnu11", "-O3", "-fPIC", "-fvisibility=hidden", "-pthread"),
    # a function without a prototype is not in edgeddl.h
    *("-Wall", "-Wextra", "-Wmissing-prototypes"),
    # without traps and errno, comparisons and square roots can become vector instructions
    *("-fno-math-errno", "-fno-trapping-math"),
)


class Build(NamedTuple):
    """Compiler flags, and the features that /proc/cpuinfo must list."""

    flags: tuple[str, ...] = ()
    features: tuple[str, ...] = ()


# By architecture, best first.
BUILDS = {
    "x86_64": {
        "avx512": Build(
            flags=(
                *("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma"),
                *("-mtune=skylake-avx512", "-mprefer-vector-width=512"),
            ),
            features=("avx512f", "avx512dq", "avx512bw", "avx512vl", "fma"),
        ),
        "avx2": Build(flags=("-mavx2", "-mfma", "-mtune=haswell"), features=("avx2", "fma")),
        "generic": Build(),
    },
    "aarch64": {
        "cortex_a72": Build(
            flags=("-mcpu=cortex-a72", "-DEDGEDDL_CORTEX_A72"), features=("CPU part 0xd08",)
        ),
        "generic": Build(),
    },
}
BUILD_NAMES = tuple(dict.fromkeys(name for builds in BUILDS.values() for name in builds))


def library_name(build: str) -> str:
    """The file name, without its suffix, of a build's shared library."""
    return f"libedgeddl_{build}"
