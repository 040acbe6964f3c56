"""Renders tables as aligned columns of text.

The tools in `cluster` use it too, so it imports neither NumPy nor Chainer.
"""

from __future__ import annotations

from collections.abc import Sequence


def render_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under headings; columns of numbers, or "-" for none, are aligned to the right."""
    columns = list(zip(headings, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [all(_is_number(cell) for cell in column[1:]) for column in columns]
    lines = [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in (headings, ["-" * width for width in widths], *rows)
    ]
    return "\n".join(lines)


def _is_number(cell: str) -> bool:
    """Whether a cell is a number, with or without sign and unit; an IP address has more dots."""
    return cell == "-" or (cell.lstrip("+-")[:1].isdigit() and cell.count(".") < 2)


def counted(count: int, noun: str) -> str:
    """A number with its noun, e.g. "1 rank" or "4 ranks"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def render_facts(facts: Sequence[tuple[str, str]]) -> str:
    """Names and values in two columns."""
    width = max(len(name) for name, _ in facts)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in facts)
