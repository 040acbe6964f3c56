"""Which library of native kernels is loaded, and what happens without one."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgeddl import machine
from edgeddl.errors import NativeKernelsUnavailable
from edgeddl.kernel_builds import BUILDS, library_name
from edgeddl.kernels import library, relu_forward
from edgeddl.kernels.binding import NativeFunction
from tests.unit.kernels.implementations import Implementation, using

try:
    loaded = library.load()
except NativeKernelsUnavailable as reason:
    pytest.skip(f"no native kernels here: {reason}", allow_module_level=True)

AVX2 = {"avx2", "fma", "f16c"}
AVX512 = AVX2 | {"avx512f", "avx512dq", "avx512bw", "avx512vl"}
CORTEX_A72 = {"CPU part 0xd08", "asimd"}


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """A folder with libraries of these builds: all are copies of the generic build."""

    def fill(*builds: str) -> Path:
        for build in builds:
            shutil.copy(library_file(library.FOLDER, "generic"), library_file(tmp_path, build))
        return tmp_path

    return fill


def library_file(folder: Path, build: str) -> Path:
    return folder / f"{library_name(build)}.so"


@pytest.mark.parametrize(
    ("architecture", "features", "build"),
    [
        ("x86_64", AVX512, "avx512"),
        ("x86_64", AVX512 - {"avx512vl"}, "avx2"),
        ("x86_64", AVX2, "avx2"),
        ("x86_64", AVX2 - {"fma"}, "generic"),
        ("x86_64", set(), "generic"),
        ("aarch64", CORTEX_A72, "cortex_a72"),
        ("aarch64", {"CPU part 0xd0b", "asimd"}, "generic"),
    ],
)
def test_the_best_build_that_the_processor_supports_is_loaded(
    folder: Callable[..., Path], architecture: str, features: set[str], build: str
) -> None:
    builds = folder(*BUILDS[architecture])
    assert library.find(builds, architecture, features, None).build == build


def test_a_missing_build_falls_back_to_the_next_best(folder: Callable[..., Path]) -> None:
    found = library.find(folder("avx2", "generic"), "x86_64", AVX512, None)
    assert found.build == "avx2"
    assert "libedgeddl_avx512.so was not built" in found.why


def test_it_is_an_error_if_no_library_was_built(tmp_path: Path) -> None:
    with pytest.raises(NativeKernelsUnavailable, match=r"generic\.so was not built") as raised:
        library.find(tmp_path, "x86_64", AVX512, None)
    assert "install a C compiler" in str(raised.value)


@pytest.mark.parametrize("kept", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_library_is_not_loaded(folder: Callable[..., Path], kept: float) -> None:
    builds = folder("cortex_a72", "generic")
    truncated = library_file(builds, "cortex_a72")
    os.truncate(truncated, int(kept * truncated.stat().st_size))
    found = library.find(builds, "aarch64", CORTEX_A72, None)
    assert found.build == "generic" and "cortex_a72.so does not load" in found.why


def test_a_library_of_another_architecture_is_not_loaded(folder: Callable[..., Path]) -> None:
    builds = folder("generic")
    image = bytearray(library_file(builds, "generic").read_bytes())
    image[18:20] = (243).to_bytes(2, "little")  # e_machine of the ELF header: RISC-V
    library_file(builds, "generic").write_bytes(image)
    with pytest.raises(NativeKernelsUnavailable, match=r"generic\.so does not load"):
        library.find(builds, "x86_64", set(), None)


def test_a_build_can_be_forced(folder: Callable[..., Path]) -> None:
    found = library.find(folder("avx512", "avx2", "generic"), "x86_64", AVX512, "avx2")
    assert found.build == "avx2" and "EDGEDDL_CPU" in found.why


@pytest.mark.parametrize("forced", ["avx512", "cortex_a72"])
def test_a_forced_build_must_run_on_this_processor(
    folder: Callable[..., Path], forced: str
) -> None:
    builds = folder("avx512", "avx2", "generic", "cortex_a72")
    with pytest.raises(NativeKernelsUnavailable, match=f"EDGEDDL_CPU={forced}.*cannot run"):
        library.find(builds, "x86_64", AVX2, forced)


def test_a_forced_build_is_not_replaced_by_another(folder: Callable[..., Path]) -> None:
    with pytest.raises(NativeKernelsUnavailable, match=r"avx512\.so was not built"):
        library.find(folder("avx2", "generic"), "x86_64", AVX512, "avx512")


def test_an_unknown_architecture_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NativeKernelsUnavailable, match="no native kernels for riscv64"):
        library.find(tmp_path, "riscv64", set(), None)


@pytest.mark.parametrize(
    ("cpuinfo", "features"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx2 fma\n\nprocessor\t: 1\n", {"fpu", "avx2", "fma"}),
        (
            "processor\t: 0\nFeatures\t: fp asimd crc32\nCPU part\t: 0xd08\nCPU revision\t: 3\n",
            {"fp", "asimd", "crc32", "CPU part 0xd08"},
        ),
        ("", set()),
    ],
)
def test_processor_features_are_read_from_cpuinfo(
    tmp_path: Path, cpuinfo: str, features: set[str]
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(cpuinfo)
    assert library.processor_features(tmp_path) == features


def test_without_cpuinfo_there_are_no_processor_features(tmp_path: Path) -> None:
    assert library.processor_features(tmp_path) == set()


def bound(name: str, arguments: str) -> NativeFunction:
    """A function of the library that is not declared anywhere else."""
    function = NativeFunction.__new__(NativeFunction)
    function.name, function.arguments, function.checked = name, arguments, True
    function.bind(loaded)
    return function


def test_a_library_older_than_the_code_is_an_error() -> None:
    with pytest.raises(NativeKernelsUnavailable, match=r"older than this code: .*edgeddl_later"):
        bound("later", "p")


def test_out_of_memory_is_an_error() -> None:
    """The sums of that many blocks of rows would exceed the address space."""
    channel_sums = bound("channel_sums", "llpp")
    with pytest.raises(MemoryError):
        channel_sums(1 << 60, 1, np.zeros(1, np.float32), np.zeros(1, np.float32))


SHORT_OF_MEMORY = """
import resource
from pathlib import Path
import numpy as np
from edgeddl import kernels
from edgeddl.kernels import library
from edgeddl.kernels.window import Window

ALL = resource.RLIM_INFINITY

def attempt(room, compute):
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room, ALL))
    try:
        return compute()
    except MemoryError:
        return None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (ALL, ALL))

library.load().set_threads(1)
if attempt(0, lambda: np.empty(1 << 28)) is not None:
    raise SystemExit("no limits")
x = np.random.default_rng(0).normal(size=(2, 8, 32, 32)).astype(np.float32)
for window in (Window(3, 3, ph=1, pw=1), Window(7, 7, ph=3, pw=3)):
    compute = lambda: kernels.convolution_weight_gradient(x, x, window)
    found = [attempt(room, compute) for room in range(0, 4 << 20, 64 << 10)]
    right = [one for one in found if one is not None]
    assert right and all((one == right[-1]).all() and one.any() for one in right)
    print(len(found) > len(right))
"""


def test_running_out_of_memory_in_a_part_is_an_error() -> None:
    """From no free memory to enough: either an error or the correct result."""
    done = subprocess.run(
        [sys.executable, "-c", SHORT_OF_MEMORY], capture_output=True, text=True, timeout=60
    )
    if "no limits" in done.stderr:
        pytest.skip("memory cannot be limited here")
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_read_only_arrays_are_accepted() -> None:
    x = np.array([[-1, 2]], np.float32)
    x.flags.writeable = False
    with using(Implementation("native", loaded)):
        np.testing.assert_array_equal(relu_forward(x), [[0, 2]])


def test_strided_arrays_are_not_passed_to_the_library() -> None:
    relu_forward = bound("relu_forward", "ppl")
    with pytest.raises(ctypes.ArgumentError):
        relu_forward(np.zeros(4, np.float32)[::2], np.zeros(2, np.float32), 2)


def test_the_number_of_threads_can_be_set() -> None:
    before = loaded.threads()
    try:
        for threads in (3, 1, 2):
            loaded.set_threads(threads)
            assert loaded.threads() == threads
            assert loaded.describe()["threads"] == str(threads)
    finally:
        loaded.set_threads(before)


@pytest.mark.parametrize(
    ("variable", "threads"), [("3", 3), ("2,1", 2), ("", None), ("many", None), (None, None)]
)
def test_omp_num_threads_sets_the_number_of_threads(
    variable: str | None, threads: int | None
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    if variable is not None:
        environment["OMP_NUM_THREADS"] = variable
    code = "from edgeddl.kernels import library; print(library.load().threads())"
    assert int(run_python(code, environment)) == (threads or machine.default_threads())


def test_describe_names_build_reason_and_compiler() -> None:
    description = loaded.describe()
    assert description["build"] in BUILDS[platform.machine()]
    assert description["why"] and description["compiler"]


def test_the_peak_is_measured() -> None:
    assert loaded.measure_peak(1) > 0


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other systems keep no memory")
def test_memory_of_large_arrays_is_reused() -> None:
    """Allocating 3 arrays of 8 MB again causes no page faults."""
    code = """
import resource, numpy as np
import edgeddl.kernels
def make():
    for array in [np.empty(2 << 20, np.float32) for _ in range(3)]:
        array[::1024] = 1
make()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
make()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    assert int(run_python(code, dict(os.environ))) < 100  # 6144 pages of 4 KiB


def run_python(code: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout
