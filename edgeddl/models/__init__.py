"""Networks, one per file; chosen by name, or by "package.module:callable" for your own."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from edgeddl.chainer_compat import chainer
from edgeddl.errors import ConfigError
from edgeddl.models.freezing import is_frozen
from edgeddl.models.macs import count_macs
from edgeddl.registry import MODELS, load

__all__ = ["build_model", "count_macs", "find_model", "is_frozen"]


def build_model(
    name: str, *, stem: str = "cifar", classes: int = 10, seed: int = 0, in_channels: int = 3
) -> Any:
    """A chainer.Chain whose forward(x) returns logits; equal seeds give equal parameters.

    A user's own callable is called with `classes`, and with `in_channels` if it has such an
    argument; it handles its own seed.
    """
    make = find_model(name)
    if ":" in name:
        return _build_own(name, make, classes, in_channels)
    return make(classes, stem, np.random.default_rng(seed), in_channels)


def find_model(name: str) -> Callable[..., Any]:
    """The callable that builds this model; raises ConfigError if there is none."""
    if name not in MODELS and ":" not in name:
        close = difflib.get_close_matches(name, MODELS, n=1)
        hint = (
            f"did you mean {close[0]}?"
            if close
            else 'use "package.module:callable" for your own model'
        )
        raise ConfigError(f"model must be one of {', '.join(MODELS)}, not {name!r}", hint=hint)
    return load("model", MODELS.get(name, name))


def _build_own(name: str, make: Callable[..., Any], classes: int, in_channels: int) -> Any:
    signature = inspect.signature(make)
    channels = {"in_channels": in_channels} if "in_channels" in signature.parameters else {}
    try:
        signature.bind(classes=classes, **channels)
    except TypeError as error:
        problem = f"cannot be called with classes={classes}: {error}"
        raise ConfigError(f"model {name}: {problem}") from error
    model = make(classes=classes, **channels)
    if not isinstance(model, chainer.Link):
        raise ConfigError(f"model {name}: returned {type(model).__name__}, not a chainer.Chain")
    return model
