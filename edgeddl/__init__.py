"""edgeddl trains neural networks, data-parallel over MPI, on clusters of low-power boards.

Python imports this module whenever it starts (edgeddl.pth): it must cost next to nothing.
"""

from edgeddl.chainer_import import install

__version__ = "0.1.0"

install()


def __getattr__(name: str) -> object:
    """edgeddl.accelerate, imported when it is asked for: it brings NumPy and Chainer with it."""
    if name == "accelerate":
        import importlib

        return importlib.import_module("edgeddl.acceleration").accelerate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
