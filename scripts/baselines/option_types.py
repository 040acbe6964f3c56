"""Option types of the benchmarks, for argparse."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection


def count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least 1")
    return int(text)


def counts(text: str) -> list[int]:
    return [count(part) for part in text.split(",")]


def names_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Return a parser for a comma-separated list of these names."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := set(names) - set(known):
            wanted = ", ".join(known)
            raise argparse.ArgumentTypeError(
                f"{', '.join(sorted(unknown))}: expected names out of {wanted}"
            )
        return names

    return parse
