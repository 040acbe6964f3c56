"""Makes `import chainer` work on today's Python and NumPy, in any program of the environment.

`import edgeddl` puts a finder in front of Python's own. It leaves every module alone but Chainer's,
which run with `chainer_shims` around them. The installed package has a file edgeddl.pth, by
which Python imports edgeddl whenever it starts. So this module imports nothing but sys: NumPy and
the stand-ins follow only when a program imports Chainer.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as typing's, whose import takes longer than all of this
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

# Those that look for what is gone while they are imported.
_NAMES = ("chainer", "chainer.testing")


class _Finder:
    """Finds Chainer as Python does, and has it executed by `_Loader`."""

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
    """A loader that puts stand-ins around the execution of a module; else it is the real one."""

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
    """Put the finder in front of the others, once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
