"""Networks, one per file; chosen by name, or by "package.module:callable" for your own."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from edgeddl.chainer_compat import chainer
from edgeddl.errors import ConfigError
from edgeddl.models.freezing import is_frozen
from edgeddl.models.macs import count_macs
from edgeddl.models.resnet9 import ResNet9
from edgeddl.models.resnet18 import ResNet18

__all__ = ["MODELS", "build_model", "count_macs", "find_model", "is_frozen"]

# By name: called with the number of classes, the name of the stem and a random generator.
MODELS: dict[str, Callable[[int, str, np.random.Generator], Any]] = {
    "resnet18": ResNet18,
    "resnet9": ResNet9,
}


def build_model(name: str, *, stem: str = "cifar", classes: int = 10, seed: int = 0) -> Any:
    """A chainer.Chain whose forward(x) returns logits; equal seeds give equal parameters.

    A user's own callable is called with `classes` only and handles its own seed.
    """
    make = find_model(name)
    if ":" in name:
        return _build_own(name, make, classes)
    return make(classes, stem, np.random.default_rng(seed))


def find_model(name: str) -> Callable[..., Any]:
    """The callable that builds this model; raises ConfigError if there is none."""
    if ":" in name:
        return _find_own(name)
    if name not in MODELS:
        close = difflib.get_close_matches(name, MODELS, n=1)
        hint = (
            f"did you mean {close[0]}?"
            if close
            else 'use "package.module:callable" for your own model'
        )
        raise ConfigError(f"model must be one of {', '.join(MODELS)}, not {name!r}", hint=hint)
    return MODELS[name]


def _build_own(name: str, make: Callable[..., Any], classes: int) -> Any:
    try:
        inspect.signature(make).bind(classes=classes)
    except TypeError as error:
        problem = f"cannot be called with classes={classes}: {error}"
        raise ConfigError(f"model {name}: {problem}") from error
    model = make(classes=classes)
    if not isinstance(model, chainer.Link):
        raise ConfigError(f"model {name}: returned {type(model).__name__}, not a chainer.Chain")
    return model


def _find_own(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), attribute]):
        raise ConfigError(f'model must be "package.module:callable", not {name!r}')
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        own = module_name == error.name or module_name.startswith(f"{error.name}.")
        wanted = "" if own else f", which {module_name} imports"
        hint = "run from the folder that holds it, or set PYTHONPATH" if own else "install it"
        raise ConfigError(
            f"model {name}: there is no module {error.name!r}{wanted}", hint=hint
        ) from error
    found = getattr(module, attribute, None)
    if not callable(found):
        problem = "is not callable" if hasattr(module, attribute) else "does not exist"
        raise ConfigError(f"model {name}: {attribute!r} in module {module_name} {problem}")
    return found
