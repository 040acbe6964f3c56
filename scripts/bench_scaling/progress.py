"""Progress bar over all runs, in seconds of estimated time: runs differ by a factor of 100."""

from __future__ import annotations

from edgeddl.terminal import ProgressBar


class Progress:
    """Shows the current run, the number of finished runs and the remaining time."""

    def __init__(self, runs: int) -> None:
        self._runs, self._done, self._done_seconds = runs, 0, 0.0
        self._bar = ProgressBar(
            total=1.0,
            smoothing=0,  # the mean so far: the error of the estimates is nearly constant
            bar_format="|{bar:20}| [{elapsed}<{remaining}] {desc}",
        )

    def begin(self, run: str, left_seconds: float) -> None:
        """Start a run; `left_seconds` is the estimate for it and all later runs."""
        self._bar.total = self._done_seconds + left_seconds
        self._bar.set_description_str(f"run {self._done + 1}/{self._runs}: {run}")

    def end(self, expected_seconds: float) -> None:
        """Finish a run, which was estimated at `expected_seconds`."""
        self._done += 1
        self._done_seconds += expected_seconds
        self._bar.update(expected_seconds)

    def print(self, text: str) -> None:
        self._bar.write(text)

    def close(self) -> None:
        self._bar.set_description_str(f"{self._done} of {self._runs} runs done")
        self._bar.close()
