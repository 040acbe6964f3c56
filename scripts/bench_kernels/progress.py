"""Progress bar over all turns of all measurements."""

from __future__ import annotations

from collections.abc import Iterable

from edgeddl.terminal import ProgressBar


class Progress:
    """Shows the current measurement, the active worker and the remaining time."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._bar = ProgressBar(
            total=turns, bar_format="{n_fmt}/{total_fmt} |{bar:20}| [{elapsed}<{remaining}] {desc}"
        )
        self._measurement = ""
        self._printed: set[str] = set()

    def begin(self, measurement: str) -> None:
        self._measurement = measurement

    def show_turn(self, name: str) -> None:
        self._bar.set_description_str(f"{self._measurement}: {name}", refresh=False)
        self._bar.update()

    def skip(self, turns: int) -> None:
        """Remove turns that will not be taken from the total."""
        self._turns -= turns
        self._bar.total = self._turns

    def print_once(self, lines: Iterable[str]) -> None:
        """Print warnings of workers, without repetitions: every new worker prints the same."""
        for line in lines:
            if line not in self._printed:
                self._printed.add(line)
                self._bar.write(line)

    def close(self) -> None:
        self._bar.set_description_str("")
        self._bar.close()
