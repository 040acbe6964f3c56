"""Tables for eyes: aligned columns of text."""

from __future__ import annotations

from collections.abc import Sequence


def render_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under headings; columns of numbers, or "-" for none, are aligned to the right."""
    table = [list(headings), *[list(row) for row in rows]]
    widths = [max(len(row[column]) for row in table) for column in range(len(headings))]
    right = [all(_is_number(row[column]) for row in rows) for column in range(len(headings))]
    lines = [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in table
    ]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join([lines[0], rule, *lines[1:]])


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.lstrip("+-")[:1].isdigit()


def counted(count: int, noun: str) -> str:
    """A number with its noun, e.g. "1 rank" or "4 ranks"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def render_facts(facts: Sequence[tuple[str, str]]) -> str:
    """Names and values in two columns."""
    width = max(len(name) for name, _ in facts)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in facts)
