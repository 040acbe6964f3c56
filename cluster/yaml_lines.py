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

from cluster.errors import ClusterError, shown

# PyYAML reads about 100 KB a second on a laptop; an inventory of 500 boards has 50 KB.
LARGEST_FILE_BYTES = 2**18
DEEPEST = 50
# With anchors, a few lines can stand for billions of values.
MOST_VALUES = 100_000


class _TooDeepError(Exception):
    """Values are nested too deeply; its argument is the line."""


class _Loader(yaml.SafeLoader):
    """Also takes Ansible's own tags; a secret stays the text that it is in the file."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        # Ends at once: 1,700 brackets took PyYAML 1.4 s, up to Python's limit of recursion.
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
        # PyYAML's own constructors raise the others for values that their tags do not fit.
        except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise self.error(f"not to be understood: {_first_line(error)}") from None

    def children(self) -> list[Part]:
        """Keys and values of a mapping, or the items of a list."""
        if not isinstance(self.node, yaml.CollectionNode):
            return []
        is_mapping = isinstance(self.node, yaml.MappingNode)
        nodes = [one for pair in self.node.value for one in pair] if is_mapping else self.node.value
        return [Part(self.path, node, node.start_mark.line + 1) for node in nodes]

    def entries(self, what: str) -> dict[str, Part]:
        """The parts of a mapping by their keys; nothing at all is an empty one."""
        if not isinstance(self.node, yaml.MappingNode):
            if self.value() is None:
                return {}
            raise self.error(
                f"{what} must be a mapping, not {shown(self.value())}", hint="lines of `key: value`"
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
                    f"{key!r} stands here a second time, first in line {found[key].line}",
                    hint="remove or rename one of them",
                )
            found[key] = part
        return found


def read_yaml(path: Path) -> Part:
    """The whole file as one part."""
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
            hint="indent with spaces, two for each level; a space after each colon",
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
    """How many values a part has with all anchors expanded, and how deeply they are nested."""

    values: int
    depth: int


def _measure(part: Part, known: dict[yaml.Node, _Extent], depth: int = 0) -> _Extent:
    """The extent of a part `depth` levels below the top; a value must not contain itself."""
    node = part.node
    if node not in known and depth <= DEEPEST:
        inner = [_measure(child, known, depth + 1) for child in part.children()]
        values = 1 + sum(extent.values for extent in inner)
        known[node] = _Extent(values, 1 + max((extent.depth for extent in inner), default=0))
    if node not in known or depth + known[node].depth > DEEPEST:
        raise part.error("values are nested too deeply, or contain themselves")
    return known[node]


def _first_line(error: Exception) -> str:
    return getattr(error, "problem", None) or (str(error).splitlines() or [""])[0]
