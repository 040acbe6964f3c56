"""Data-parallel training of neural networks over MPI, on clusters of low-power boards.

Python imports this module at every start (edgeddl.pth), so it must be cheap to import.
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


# Imported on first use, because they import NumPy and Chainer.
_LAZY = {"accelerate": "edgeddl.acceleration", "load": "edgeddl.inference"}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
