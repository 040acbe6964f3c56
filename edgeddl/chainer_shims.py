"""What Chainer 7.8.1 needs to run on Python 3.11-3.13 with NumPy 1.26 and 2.x.

Chainer is frozen; what it needs has since left Python, setuptools and NumPy. Whatever is missing
is stood in for while Chainer is imported, and taken away afterwards: other packages see the real
NumPy and no invented modules. A real pkg_resources wins where there is one.

`chainer_import` puts this around every import of Chainer.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

# np.sctypes as NumPy 1.26 has it, in the two groups Chainer asks for. NumPy 2.0 removed it.
_SCTYPES: dict[str, list[type]] = {
    "int": [np.int8, np.int16, np.int32, np.int64],
    "float": [np.float16, np.float32, np.float64, np.longdouble],
}


def _distutils_shim() -> dict[str, ModuleType]:
    """numpy.distutils: gone on Python 3.12 with distutils itself, and from later NumPy altogether.

    Chainer asks it one thing, on macOS: whether NumPy was built with Accelerate. That is not worth
    trying the real one, which drags in all of distutils, its warnings, and on some pairs of NumPy
    and setuptools an error. No information is an answer Chainer understands.
    """
    system_info = ModuleType("numpy.distutils.system_info")
    system_info.get_info = lambda name: {}  # type: ignore[attr-defined]
    distutils = ModuleType("numpy.distutils")
    distutils.system_info = system_info  # type: ignore[attr-defined]
    return {"numpy.distutils": distutils, "numpy.distutils.system_info": system_info}


def _pkg_resources_shim() -> dict[str, ModuleType]:
    """pkg_resources: gone from setuptools, which a venv of Python 3.12 does not have at all.

    Chainer looks for CuPy and iDeep with it, chainer.testing for test requirements. The stand-in
    finds packages, but does not compare versions: that would need a version parser.
    """

    class ResolutionError(Exception):
        pass

    class DistributionNotFound(ResolutionError):
        pass

    class VersionConflict(ResolutionError):
        pass

    def get_distribution(requirement: str) -> importlib.metadata.Distribution:
        name = re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0]
        try:
            return importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError as error:
            raise DistributionNotFound(requirement) from error

    class WorkingSet:
        def require(self, *requirements: str) -> list[importlib.metadata.Distribution]:
            return [get_distribution(requirement) for requirement in requirements]

    module = ModuleType("pkg_resources")
    vars(module).update(
        ResolutionError=ResolutionError,
        DistributionNotFound=DistributionNotFound,
        VersionConflict=VersionConflict,
        WorkingSet=WorkingSet,
        get_distribution=get_distribution,
        require=WorkingSet().require,
    )
    return {"pkg_resources": module}


def _importable(name: str) -> bool:
    """Whether the real module imports; what a failed attempt leaves behind is removed.

    Any exception counts: pkg_resources of an old setuptools raises AttributeError on Python 3.12.
    """
    try:
        importlib.import_module(name)
    except Exception:
        for left in [module for module in sys.modules if module.startswith(name + ".")]:
            del sys.modules[left]
        return False
    return True


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences what a user cannot mend: Chainer's age, and pkg_resources announcing its end.

    Chainer's own warnings, as about a CuPy that does not fit, still come through.
    """
    with warnings.catch_warnings():
        for category in (DeprecationWarning, PendingDeprecationWarning, SyntaxWarning):
            warnings.simplefilter("ignore", category)
        warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
        yield


@contextmanager
def _attribute(module: ModuleType, name: str, value: Any) -> Iterator[None]:
    """Within the block the module has the attribute; one it already has is left alone."""
    if hasattr(module, name):
        yield
        return
    setattr(module, name, value)
    try:
        yield
    finally:
        delattr(module, name)


@contextmanager
def _modules(modules: dict[str, ModuleType]) -> Iterator[None]:
    """Within the block these modules can be imported."""
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            sys.modules.pop(name, None)


@contextmanager
def legacy_modules() -> Iterator[None]:
    """Within the block, modules and names that Chainer imports exist, if need be as stand-ins."""
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        if not _importable("pkg_resources"):
            stack.enter_context(_modules(_pkg_resources_shim()))
        if "numpy.distutils" not in sys.modules:
            modules = _distutils_shim()
            stack.enter_context(_modules(modules))
            stack.enter_context(_attribute(np, "distutils", modules["numpy.distutils"]))
        stack.enter_context(_attribute(np, "sctypes", _SCTYPES))
        yield


class _NumpyWith(ModuleType):
    """NumPy, and names it no longer has."""

    def __init__(self, **names: Any) -> None:
        super().__init__("numpy")
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def _with_numpy(function: FunctionType, alias: str, numpy: ModuleType) -> FunctionType:
    """The same function, for which the global name `alias` is another NumPy.

    Only for it: its module tells NumPy from CuPy arrays by `xp is numpy`, so needs the real one.
    """
    scope = {**function.__globals__, alias: numpy}
    return FunctionType(function.__code__, scope, function.__name__, function.__defaults__)


def restore_removed_names() -> None:
    """Names that Chainer's functions look up in NumPy when called, not when imported."""
    if not hasattr(np, "float"):  # removed in NumPy 1.24; F.resize_images uses it as a dtype
        resize = importlib.import_module("chainer.functions.array.resize_images")
        resize.compute_indices_and_weights = _with_numpy(  # type: ignore[attr-defined]
            resize.compute_indices_and_weights, "numpy", _NumpyWith(float=float)
        )
    if not hasattr(np, "sctypes"):  # removed in NumPy 2.0; backward of F.as_strided uses it
        gradient = importlib.import_module("chainer.functions.array.as_strided").AsStridedGrad
        gradient.forward = _with_numpy(gradient.forward, "np", _NumpyWith(sctypes=_SCTYPES))
