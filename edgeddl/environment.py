"""Names the packages that this Python lacks, instead of a traceback about the first one."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

# What commands need. Looked for, not imported: BLAS reads its number of threads at the import.
REQUIRED = ("chainer", "mpi4py", "numpy", "prometheus_client", "tqdm")


def check_environment() -> None:
    """Exit with a message that says how to get the packages, if any is missing."""
    missing = [name for name in REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(
            f"error: {sys.executable} lacks packages that edgeddl needs: {', '.join(missing)}\n"
            f"  hint: {_remedy(Path(__file__).parents[1])}"
        )


def _remedy(clone: Path) -> str:
    activate = os.path.relpath(clone / ".venv/bin/activate")
    if (clone / ".venv/setup.stamp").exists():
        return f"activate the environment: . {activate}"
    if (setup := clone / "scripts/setup").exists():
        return f"set the environment up: {setup}; then activate it: . {activate}"
    return "install edgeddl with its dependencies: pip install edgeddl"
