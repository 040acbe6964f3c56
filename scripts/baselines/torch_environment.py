"""PyTorch's own virtual environment, .venv-torch."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
ENVIRONMENT = REPOSITORY / ".venv-torch"
TORCH_PYTHON = ENVIRONMENT / "bin" / "python"
# Only the CPU build matches: on x86-64, PyPI's 2.13.0 includes gigabytes of CUDA libraries.
TORCH = "torch==2.13.0+cpu"
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"


def add_torch_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that select PyTorch's environment."""
    group = parser.add_argument_group("PyTorch")
    group.add_argument(
        "--with-torch", action="store_true", help=f"install {TORCH} into {ENVIRONMENT.name} first"
    )
    group.add_argument(
        "--torch-python",
        type=Path,
        default=TORCH_PYTHON,
        metavar="PATH",
        help=f"Python interpreter with PyTorch (default: that of {ENVIRONMENT.name})",
    )


def find_torch(options: argparse.Namespace) -> Path | None:
    """Return the interpreter with PyTorch, or None; install it first if requested."""
    python: Path = options.torch_python
    if options.with_torch and not has_torch(python):
        install()
    return python if has_torch(python) else None


def torch_version(python: Path) -> str:
    command = [str(python), "-c", "import torch; print(torch.__version__)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def has_torch(python: Path) -> bool:
    if not python.exists():
        return False
    search = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    return subprocess.run([python, "-c", search]).returncode == 0


def install() -> None:
    print(f"installing {TORCH} into {ENVIRONMENT.name} (some minutes)", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
    (ENVIRONMENT / ".gitignore").write_text("*\n")
    pip = [str(TORCH_PYTHON), "-m", "pip", "install", "-qq", "--retries", "1"]
    subprocess.run([*pip, "--extra-index-url", CPU_WHEELS, TORCH, "numpy"], check=True)
