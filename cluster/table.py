"""Tables for eyes: aligned columns of text."""

from __future__ import annotations

from collections.abc import Sequence


def render_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under headings; columns of numbers, or "-" for none, are aligned to the right."""
    table = [list(headings), *[list(row) for row in rows]]
    columns = list(zip(*table, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [all(_is_number(cell) for cell in column[1:]) for column in columns]
    lines = [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in (table[0], ["-" * width for width in widths], *table[1:])
    ]
    return "\n".join(lines)


def _is_number(cell: str) -> bool:
    """Numbers may have a unit; an address has several points."""
    return cell == "-" or (cell[:1].isdigit() and cell.count(".") < 2)
