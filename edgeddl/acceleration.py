"""Runs an unmodified Chainer model on edgeddl's kernels."""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from edgeddl import functions, links
from edgeddl.chainer_compat import F, L, chainer
from edgeddl.functions.node import left_to_chainer, stock
from edgeddl.links.memory_order import order_weights

LINKS: dict[type, type] = {
    L.Convolution2D: links.Convolution2D,
    L.DepthwiseConvolution2D: links.DepthwiseConvolution2D,
    L.BatchNormalization: links.BatchNormalization,
    L.Linear: links.Linear,
}
# Names of functions that both Chainer and edgeddl have.
SHARED = [name for name in functions.__all__ if hasattr(stock, name)]
OURS: dict[Callable[..., Any], Callable[..., Any]] = {
    getattr(stock, name): getattr(functions, name) for name in SHARED
}


def accelerate(model: Any) -> Any:
    """Replace Chainer's layers and functions in a model by edgeddl's, in place; returns the model.

    Layers whose class is exactly Chainer's Convolution2D, DepthwiseConvolution2D,
    BatchNormalization or Linear become edgeddl's; subclasses stay unchanged. Functions stored in a
    link (F.relu in a Sequential, the loss of a Classifier) are replaced. Functions that code looks
    up at run time, such as F.relu(h), are redirected: while a chain of this model runs, names in
    chainer.functions refer to edgeddl's functions in the calling thread, and to Chainer's
    everywhere else. A function imported by name (from chainer.functions import relu) stays
    Chainer's.

    Parameters remain the same objects with the same names, so optimizers and saved parameters stay
    valid. The weights of convolutions, their gradients and their optimizer state change their
    memory layout. Like all of edgeddl's functions, the model has no second derivatives.
    """
    _install()
    for link in model.links():
        if type(link) in LINKS:
            if not left_to_chainer(type(link).__name__, _not_covered(link)):
                link.__class__ = LINKS[type(link)]
        elif isinstance(link, (chainer.Chain, chainer.ChainList)):
            link.__class__ = _redirecting(link.__class__)
        for name, value in vars(link).items():
            link.__dict__[name] = _ours(value)
        if type(link) is links.Convolution2D:
            order_weights(link.W)
    return model


def _not_covered(link: Any) -> str | None:
    return "compute_mode 'cudnn_fast'" if getattr(link, "cudnn_fast", False) else None


def _ours(value: Any) -> Any:
    """Replace Chainer's functions in a value, also in partials and in the list of a Sequential."""
    if isinstance(value, types.FunctionType):
        return OURS.get(value, value)
    if isinstance(value, functools.partial):
        return functools.partial(_ours(value.func), *value.args, **value.keywords)
    if isinstance(value, list):
        value[:] = [_ours(element) for element in value]
    return value


class _Current(threading.local):
    redirects = False


_current = _Current()


@contextmanager
def _redirected() -> Iterator[None]:
    """Redirect chainer.functions to edgeddl's functions in this thread, within the block."""
    previous, _current.redirects = _current.redirects, True
    try:
        yield
    finally:
        _current.redirects = previous


class _Redirecting:
    """Mixin for the class of a chain: calls of the chain run redirected."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _redirected():
            return super().__call__(*args, **kwargs)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copy and pickle by the original class: the generated one cannot be found by name."""
        _, _, kind, *_ = type(self).__mro__
        return _rebuild, (kind,), self.__getstate__()


@functools.cache
def _redirecting(kind: Any) -> Any:
    if issubclass(kind, _Redirecting):
        return kind
    return types.new_class(
        kind.__name__,
        (_Redirecting, kind),
        exec_body=lambda body: body.update(__module__=kind.__module__, __doc__=kind.__doc__),
    )


def _rebuild(kind: Any) -> Any:
    _install()
    made = _redirecting(kind)
    return made.__new__(made)


@functools.cache
def _install() -> None:
    """Install the redirecting functions in chainer.functions, once."""
    for name in SHARED:
        setattr(F, name, _switch(name, getattr(stock, name), getattr(functions, name)))


def _switch(
    name: str, chainers: Callable[..., Any], ours: Callable[..., Any]
) -> Callable[..., Any]:
    @functools.wraps(chainers)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (ours if _current.redirects else chainers)(*args, **kwargs)

    call.__module__, call.__qualname__ = F.__name__, name  # where pickle finds it
    OURS[call] = ours
    return call
