"""Makes `import chainer` work with current Python and NumPy, in every program of the environment.

`import edgeddl` installs an import hook that affects only Chainer: its modules are executed with
the shims of `chainer_shims`. Python imports edgeddl at every start (edgeddl.pth), so this module
imports only sys; NumPy and the shims are imported when a program imports Chainer.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # importing typing would take longer than this whole module
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

# Modules that use removed names while they are imported.
_NAMES = ("chainer", "chainer.testing")


class _Finder:
    """Finds Chainer with the other finders and wraps its loader in `_Loader`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _NAMES:
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
                    return spec
        return None


class _Loader:
    """Executes a module with the shims in place; delegates everything else to the real loader."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        from edgeddl.chainer_shims import legacy_modules, restore_removed_names

        module.__loader__ = module.__spec__.loader = self._loader
        with legacy_modules():
            self._loader.exec_module(module)
        if module.__name__ == "chainer":
            restore_removed_names()


def install() -> None:
    """Install the finder in front of the others, once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
