"""Data-parallel training of neural networks over MPI, on clusters of low-power boards.

Python imports this module at every start (edgeddl.pth), so it must be cheap to import.
"""

import sys

from edgeddl.chainer_import import install

TYPE_CHECKING = False  # as typing.TYPE_CHECKING, without importing typing (2.7 ms, x86-64)
if TYPE_CHECKING:
    from edgeddl.acceleration import accelerate as accelerate
    from edgeddl.config import TrainConfig as TrainConfig
    from edgeddl.data import Dataset as Dataset
    from edgeddl.inference import TrainedModel as TrainedModel
    from edgeddl.inference import load as load
    from edgeddl.library import Run as Run
    from edgeddl.library import train as train
    from edgeddl.training.loop import Extension as Extension

__version__ = "0.2.0"

install()


def _is_command(words: list[str]) -> bool:
    """Whether Python was started as `python -m edgeddl...`."""
    return "-m" in words and words[words.index("-m") + 1].startswith("edgeddl")


if _is_command(sys.orig_argv):
    from edgeddl.environment import check_environment

    check_environment()


# Imported on first use, because most of them import NumPy and Chainer.
_LAZY = {
    "Dataset": "edgeddl.data",
    "Extension": "edgeddl.training.loop",
    "Run": "edgeddl.library",
    "TrainConfig": "edgeddl.config",
    "TrainedModel": "edgeddl.inference",
    "accelerate": "edgeddl.acceleration",
    "load": "edgeddl.inference",
    "train": "edgeddl.library",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
