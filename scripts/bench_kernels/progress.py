"""A bar over all turns of all measurements."""

from __future__ import annotations

from collections.abc import Iterable

from edgeddl.terminal import ProgressBar


class Progress:
    """Says what is being measured, who is at work and how much is left."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._bar = ProgressBar(
            total=turns, bar_format="{n_fmt}/{total_fmt} |{bar:20}| [{elapsed}<{remaining}] {desc}"
        )
        self._measurement = ""
        self._said: set[str] = set()

    def begin(self, measurement: str) -> None:
        self._measurement = measurement

    def show_turn(self, name: str) -> None:
        self._bar.set_description_str(f"{self._measurement}: {name}", refresh=False)
        self._bar.update()

    def leave_out(self, turns: int) -> None:
        """So many turns will not be taken."""
        self._turns -= turns
        self._bar.total = self._turns

    def say_once(self, lines: Iterable[str]) -> None:
        """Warnings of workers: every new worker has the same ones."""
        for line in lines:
            if line not in self._said:
                self._said.add(line)
                self._bar.write(line)

    def close(self) -> None:
        self._bar.set_description_str("")
        self._bar.close()
