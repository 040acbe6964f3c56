"""Reads YAML and keeps the line of every value, for error messages."""

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

from cluster.errors import ClusterError, shown

# PyYAML reads about 100 KB/s on a laptop; an inventory of 500 boards has 50 KB.
LARGEST_FILE_BYTES = 2**18
DEEPEST = 50
# With anchors, a few lines can stand for billions of values.
MOST_VALUES = 100_000


class _TooDeepError(Exception):
    """Values are nested too deeply; the argument is the line number."""


class _Loader(yaml.SafeLoader):
    """Accepts Ansible's own tags too; an encrypted value stays encrypted text."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        # Fails early: 1,700 brackets took PyYAML 1.4 s, up to Python's recursion limit.
        self._depth += 1
        if self._depth > DEEPEST:
            raise _TooDeepError(self.peek_event().start_mark.line + 1)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _as_text(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    return node.value


for tag in ("!vault", "!unsafe"):
    _Loader.add_constructor(tag, _as_text)


@dataclass(frozen=True)
class Part:
    """A value in a YAML file; `line` is the line of its key."""

    path: Path
    node: yaml.Node
    line: int

    def error(self, message: str, *, hint: str = "") -> ClusterError:
        return ClusterError(f"{self.path}:{self.line}: {message}", hint=hint)

    def value(self) -> Any:
        """Return the value as a Python object."""
        loader = _Loader("")
        try:
            return loader.construct_document(self.node)
        # PyYAML's constructors raise these if a value does not fit its tag.
        except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise self.error(f"invalid value: {_first_line(error)}") from None

    def children(self) -> list[Part]:
        """Return keys and values of a mapping, or the items of a list."""
        if not isinstance(self.node, yaml.CollectionNode):
            return []
        is_mapping = isinstance(self.node, yaml.MappingNode)
        nodes = [one for pair in self.node.value for one in pair] if is_mapping else self.node.value
        return [Part(self.path, node, node.start_mark.line + 1) for node in nodes]

    def entries(self, what: str) -> dict[str, Part]:
        """Return the values of a mapping by key; a missing value is an empty mapping."""
        if not isinstance(self.node, yaml.MappingNode):
            if self.value() is None:
                return {}
            raise self.error(
                f"{what} must be a mapping, not {shown(self.value())}",
                hint="write it as lines of `key: value`",
            )
        found: dict[str, Part] = {}
        for key_node, node in self.node.value:
            part = Part(self.path, node, key_node.start_mark.line + 1)
            is_merge = key_node.tag == "tag:yaml.org,2002:merge"
            key = "<<" if is_merge else Part(self.path, key_node, part.line).value()
            if not isinstance(key, str):
                raise part.error(
                    f"the key {shown(key)} must be text", hint=f'write "{shown(key)}":'
                )
            if key in found:
                raise part.error(
                    f"duplicate key {key!r}, first used in line {found[key].line}",
                    hint="remove or rename one of them",
                )
            found[key] = part
        return found


def read_yaml(path: Path) -> Part:
    """Read a file and return its top-level value."""
    try:
        text = _read_limited(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file (UTF-8)"
        raise ClusterError(f"cannot read {path}: {reason}") from None
    try:
        node = yaml.compose(text, _Loader)
    except _TooDeepError as error:
        raise ClusterError(f"{path}:{error}: values are nested too deeply") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        raise ClusterError(
            f"{place}: not YAML: {_first_line(error)}",
            hint="indent by two spaces per level, and put a space after each colon",
        ) from None
    if node is None:
        raise ClusterError(f"{path}:1: the file is empty")
    whole = Part(path, node, 1)
    if _measure(whole, {}).values > MOST_VALUES:
        raise whole.error(f"anchors expand to more than {MOST_VALUES:,} values")
    return whole


def _read_limited(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(LARGEST_FILE_BYTES + 1)
    if len(content) > LARGEST_FILE_BYTES:
        raise ClusterError(f"{path}: larger than {LARGEST_FILE_BYTES:,} bytes")
    return content


@dataclass(frozen=True)
class _Extent:
    """Number and nesting depth of a part's values, with all anchors expanded."""

    values: int
    depth: int


def _measure(part: Part, known: dict[yaml.Node, _Extent], depth: int = 0) -> _Extent:
    """Measure a part `depth` levels below the top; raise if a value contains itself."""
    node = part.node
    if node not in known and depth <= DEEPEST:
        inner = [_measure(child, known, depth + 1) for child in part.children()]
        values = 1 + sum(extent.values for extent in inner)
        known[node] = _Extent(values, 1 + max((extent.depth for extent in inner), default=0))
    if node not in known or depth + known[node].depth > DEEPEST:
        raise part.error("values are nested too deeply or contain themselves")
    return known[node]


def _first_line(error: Exception) -> str:
    return getattr(error, "problem", None) or (str(error).splitlines() or [""])[0]
