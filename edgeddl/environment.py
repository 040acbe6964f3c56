"""Reports missing packages in one message instead of a traceback."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

# Needed by the commands. Importing them is too early: BLAS then reads its number of threads.
REQUIRED = ("chainer", "mpi4py", "numpy", "prometheus_client", "tqdm")


def check_environment() -> None:
    """Exit with installation instructions if a package is missing."""
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
        return f"run {setup}, then activate the environment: . {activate}"
    return "install edgeddl with its dependencies: pip install edgeddl"
