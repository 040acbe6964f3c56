"""edgeddl trains neural networks, data-parallel over MPI, on clusters of low-power boards."""

import importlib
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """edgeddl.accelerate, imported when it is asked for: it brings NumPy and Chainer with it."""
    if name == "accelerate":
        return importlib.import_module("edgeddl.acceleration").accelerate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
