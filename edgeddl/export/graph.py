"""A network as ONNX operators on named arrays, without the onnx package."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray


@dataclass
class Operator:
    """One ONNX operator: its type, the names of its inputs and its output, and its attributes."""

    type: str
    inputs: list[str]
    output: str
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass
class Graph:
    """Operators in the order of computation; `constants` are inputs with a fixed value."""

    input: str
    output: str
    operators: list[Operator] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def add(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Append an operator; returns the name of its output."""
        name = output or f"{kind.lower()}_{len(self.operators)}"
        self.operators.append(Operator(kind, list(inputs), name, attributes))
        return name

    def constant(self, value: Any, name: str = "") -> str:
        """Add a constant; returns its name. A name that is in use is assumed to be the same."""
        name = name or f"constant_{len(self.constants)}"
        self.constants[name] = np.asarray(value, order="C")
        return name

    def users(self, name: str) -> list[Operator]:
        return [operator for operator in self.operators if name in operator.inputs]

    def rename_output(self, name: str) -> None:
        """Give the result of the network this name."""
        for operator in self.operators:
            operator.inputs = [name if one == self.output else one for one in operator.inputs]
            if operator.output == self.output:
                operator.output = name
        self.output = name

    def equals(self, other: Graph) -> bool:
        """Whether both have the same operators and constants."""
        return (
            (self.output, self.operators) == (other.output, other.operators)
            and self.constants.keys() == other.constants.keys()
            and all(
                np.array_equal(self.constants[name], other.constants[name])
                for name in self.constants
            )
        )

    def remove_unused_constants(self) -> None:
        used = set(self._used())
        self.constants = {name: value for name, value in self.constants.items() if name in used}

    def _used(self) -> Iterator[str]:
        for operator in self.operators:
            yield from operator.inputs
