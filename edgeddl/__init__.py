"""edgeddl trains neural networks, data-parallel over MPI, on clusters of low-power boards."""

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

# What commands need. Looked for, not imported: BLAS reads its number of threads at the import.
REQUIRED = ("chainer", "mpi4py", "numpy", "prometheus_client", "tqdm")


def _check_environment() -> None:
    """Say how to get the packages that this Python lacks, instead of a traceback about one."""
    missing = [name for name in REQUIRED if importlib.util.find_spec(name) is None]
    if not missing:
        return
    message = (
        f"{sys.executable} lacks packages that edgeddl needs: {', '.join(missing)}\n"
        f"  hint: {_remedy(Path(__file__).parents[1])}"
    )
    if sys.argv[:1] == ["-m"]:  # python -m edgeddl..., before its module is found
        raise SystemExit(f"error: {message}")
    raise ModuleNotFoundError(message)


def _remedy(clone: Path) -> str:
    activate = os.path.relpath(clone / ".venv/bin/activate")
    if (clone / ".venv/setup.stamp").exists():
        return f"activate the environment: . {activate}"
    if (setup := clone / "scripts/setup").exists():
        return f"set the environment up: {setup}; then activate it: . {activate}"
    return "install edgeddl with its dependencies: pip install edgeddl"


_check_environment()


def __getattr__(name: str) -> Any:
    """edgeddl.accelerate, imported when it is asked for: it brings NumPy and Chainer with it."""
    if name == "accelerate":
        return importlib.import_module("edgeddl.acceleration").accelerate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
