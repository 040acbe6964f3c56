"""The environment .venv-parity: onnxruntime, safetensors and stock Chainer, without edgeddl."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
ENVIRONMENT = REPOSITORY / ".venv-parity"
PYTHON = ENVIRONMENT / "bin" / "python"
# Chainer 7.8.1 uses names that NumPy 1.24 and setuptools 81 removed.
PACKAGES = (
    "chainer==7.8.1",
    "numpy==1.23.5",
    "onnx==1.23.2",
    "onnxruntime==1.31.1",
    "safetensors==0.8.0",
    "setuptools<81",
)


def prepare() -> Path:
    """Create the environment unless it is complete; returns its Python."""
    stamp = ENVIRONMENT / "packages"
    wanted = "\n".join([sys.version, *PACKAGES])
    if not stamp.exists() or stamp.read_text() != wanted:
        if sys.version_info[:2] != (3, 11):  # NumPy 1.23 has no wheels for later versions
            raise SystemExit(
                "scripts/test-parity: stock Chainer needs NumPy 1.23 and so Python 3.11\n"
                "  hint: PYTHON=/path/to/python3.11 scripts/test-parity"
            )
        print(f"installing {', '.join(PACKAGES)} into {ENVIRONMENT.name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
        (ENVIRONMENT / ".gitignore").write_text("*\n")
        subprocess.run([PYTHON, "-m", "pip", "install", "-qq", *PACKAGES], check=True)
        stamp.write_text(wanted)
    return PYTHON
