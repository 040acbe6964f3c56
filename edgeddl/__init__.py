"""edgeddl trains neural networks, data-parallel over MPI, on clusters of low-power boards.

Python imports this module whenever it starts (edgeddl.pth): it must cost next to nothing.
"""

import sys

from edgeddl.chainer_import import install

__version__ = "0.2.0"

install()


def _is_command(words: list[str]) -> bool:
    """Whether Python was started as `python -m edgeddl...`."""
    return "-m" in words and words[words.index("-m") + 1].startswith("edgeddl")


if _is_command(sys.orig_argv):
    from edgeddl.environment import check_environment

    check_environment()


def __getattr__(name: str) -> object:
    """edgeddl.accelerate, imported when it is asked for: it brings NumPy and Chainer with it."""
    if name == "accelerate":
        import importlib

        return importlib.import_module("edgeddl.acceleration").accelerate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
