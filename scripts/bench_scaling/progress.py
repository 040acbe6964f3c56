"""A bar over all runs: its unit is a second of expected time, for runs differ a hundredfold."""

from __future__ import annotations

from edgeddl.terminal import ProgressBar


class Progress:
    """Says which run is under way, how many are done and how long the rest will take."""

    def __init__(self, runs: int) -> None:
        self._runs, self._done, self._done_seconds = runs, 0, 0.0
        self._bar = ProgressBar(
            total=1.0,
            smoothing=0,  # the mean so far: how far estimates are off does not change much
            bar_format="|{bar:20}| [{elapsed}<{remaining}] {desc}",
        )

    def begin(self, run: str, left_seconds: float) -> None:
        """A run starts; it and those after it are expected to take so long."""
        self._bar.total = self._done_seconds + left_seconds
        self._bar.set_description_str(f"run {self._done + 1}/{self._runs}: {run}")

    def end(self, expected_seconds: float) -> None:
        """The run is over, which was expected to take so long."""
        self._done += 1
        self._done_seconds += expected_seconds
        self._bar.update(expected_seconds)

    def say(self, text: str) -> None:
        self._bar.write(text)

    def close(self) -> None:
        self._bar.set_description_str(f"{self._done} of {self._runs} runs made")
        self._bar.close()
