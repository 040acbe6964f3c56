"""YAML whose every part knows its line, so that an error can name it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import yaml
except ModuleNotFoundError:  # without an active environment; commands import this at their start
    raise SystemExit(
        "error: PyYAML is missing from this Python\n"
        "hint: activate the environment: . .venv/bin/activate (made by ./scripts/setup)"
    ) from None

from cluster.errors import ClusterError


class _Loader(yaml.SafeLoader):
    """Also takes Ansible's own tags; a secret stays the text that it is in the file."""


def _as_text(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    return node.value


for tag in ("!vault", "!unsafe"):
    _Loader.add_constructor(tag, _as_text)


@dataclass(frozen=True)
class Part:
    """A value in a YAML file; `line` is that of its key."""

    path: Path
    node: yaml.Node
    line: int

    def error(self, message: str, *, hint: str = "") -> ClusterError:
        return ClusterError(f"{self.path}:{self.line}: {message}", hint=hint)

    def value(self) -> Any:
        """As Python sees it."""
        loader = _Loader("")
        try:
            return loader.construct_document(self.node)
        except (yaml.MarkedYAMLError, ValueError) as error:  # ValueError: such as a 40th of March
            raise self.error(f"not to be understood: {_first_line(error)}") from None

    def entries(self, what: str) -> dict[str, Part]:
        """The parts of a mapping by their keys; nothing at all is an empty one."""
        if not isinstance(self.node, yaml.MappingNode):
            if self.value() is None:
                return {}
            raise self.error(
                f"{what} must be a mapping, not {self.value()!r}", hint="lines of `key: value`"
            )
        found: dict[str, Part] = {}
        for key_node, node in self.node.value:
            part = Part(self.path, node, key_node.start_mark.line + 1)
            is_merge = key_node.tag == "tag:yaml.org,2002:merge"
            key = "<<" if is_merge else Part(self.path, key_node, part.line).value()
            if not isinstance(key, str):
                raise part.error(f"the key {key!r} must be text", hint=f'write "{key}":')
            if key in found:
                raise part.error(
                    f"{key!r} stands here a second time, first in line {found[key].line}",
                    hint="remove or rename one of them",
                )
            found[key] = part
        return found


def read_yaml(path: Path) -> Part:
    """The whole file as one part."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file (UTF-8)"
        raise ClusterError(f"cannot read {path}: {reason}") from None
    try:
        node = yaml.compose(text, _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        raise ClusterError(
            f"{place}: not YAML: {_first_line(error)}",
            hint="indent with spaces, two for each level; a space after each colon",
        ) from None
    if node is None:
        raise ClusterError(f"{path}:1: the file is empty")
    return Part(path, node, 1)


def _first_line(error: Exception) -> str:
    return getattr(error, "problem", None) or str(error).splitlines()[0]
