"""Shims that let Chainer 7.8.1 run on Python 3.11-3.13 with NumPy 1.26 and 2.x.

Chainer is no longer developed, and names that it uses have been removed from Python, setuptools and
NumPy. The shims replace them while Chainer is imported and are removed afterwards, so other
packages see the real NumPy and no fake modules. A real pkg_resources is used if there is one.

`chainer_import` applies the shims to every import of Chainer.
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

# np.sctypes of NumPy 1.26, reduced to the two groups that Chainer uses. NumPy 2.0 removed it.
_SCTYPES: dict[str, list[type]] = {
    "int": [np.int8, np.int16, np.int32, np.int64],
    "float": [np.float16, np.float32, np.float64, np.longdouble],
}


def _distutils_shim() -> dict[str, ModuleType]:
    """A replacement for numpy.distutils, which Python 3.12 and later NumPy releases lack.

    Chainer uses it only on macOS, to find out whether NumPy was built with Accelerate. The real
    module is never tried: it imports all of distutils, prints warnings, and fails with some
    versions of NumPy and setuptools. Chainer accepts an empty result.
    """
    system_info = ModuleType("numpy.distutils.system_info")
    system_info.get_info = lambda name: {}  # type: ignore[attr-defined]
    distutils = ModuleType("numpy.distutils")
    distutils.system_info = system_info  # type: ignore[attr-defined]
    return {"numpy.distutils": distutils, "numpy.distutils.system_info": system_info}


def _pkg_resources_shim() -> dict[str, ModuleType]:
    """A replacement for pkg_resources, which setuptools has removed.

    A venv of Python 3.12 has no setuptools at all. Chainer uses pkg_resources to find CuPy and
    iDeep, chainer.testing to find test requirements. The shim finds packages but does not compare
    versions, because that would need a version parser.
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
    """Whether the real module can be imported; removes the traces of a failed attempt.

    Catches any exception: pkg_resources of an old setuptools raises AttributeError on Python 3.12.
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
    """Silences warnings that a user cannot fix: deprecations in Chainer and of pkg_resources.

    Chainer's own warnings, for example about an incompatible CuPy, are still shown.
    """
    with warnings.catch_warnings():
        for category in (DeprecationWarning, PendingDeprecationWarning, SyntaxWarning):
            warnings.simplefilter("ignore", category)
        warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
        yield


@contextmanager
def _attribute(module: ModuleType, name: str, value: Any) -> Iterator[None]:
    """Add an attribute to a module within the block, unless the module has it."""
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
    """Make these modules importable within the block."""
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            sys.modules.pop(name, None)


@contextmanager
def legacy_modules() -> Iterator[None]:
    """Provide the modules and names that Chainer imports, within the block."""
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
    """NumPy with additional names."""

    def __init__(self, **names: Any) -> None:
        super().__init__("numpy")
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def _with_numpy(function: FunctionType, alias: str, numpy: ModuleType) -> FunctionType:
    """A copy of a function whose global name `alias` refers to another NumPy.

    The rest of its module keeps the real NumPy: it distinguishes NumPy from CuPy by `xp is numpy`.
    """
    scope = {**function.__globals__, alias: numpy}
    return FunctionType(function.__code__, scope, function.__name__, function.__defaults__)


def restore_removed_names() -> None:
    """Restore names that Chainer's functions look up in NumPy when called, not when imported."""
    if not hasattr(np, "float"):  # removed in NumPy 1.24; F.resize_images uses it as a dtype
        resize = importlib.import_module("chainer.functions.array.resize_images")
        resize.compute_indices_and_weights = _with_numpy(  # type: ignore[attr-defined]
            resize.compute_indices_and_weights, "numpy", _NumpyWith(float=float)
        )
    if not hasattr(np, "sctypes"):  # removed in NumPy 2.0; backward of F.as_strided uses it
        gradient = importlib.import_module("chainer.functions.array.as_strided").AsStridedGrad
        gradient.forward = _with_numpy(gradient.forward, "np", _NumpyWith(sctypes=_SCTYPES))
