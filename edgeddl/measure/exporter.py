"""python -m edgeddl bench exporter: measures how much scraping slows down training.

Starts a training run and scrapes it at alternating rates: never, once per second, and much more
often, so that the cost exceeds the noise. The run itself reports the time of its steps. Processor
time comes from the kernel and hardly depends on other programs.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from edgeddl.atomic_file import check_output_path, write_json
from edgeddl.errors import ConfigError, EdgeddlError
from edgeddl.metrics import names
from edgeddl.metrics.listening import listen
from edgeddl.table import render_table
from edgeddl.terminal import ProgressBar

RATES = (0, 1, 20)  # scrapes per second
TRAINING = (
    "--dataset", "shapes", "--limit-train", "2000", "--limit-test", "16", "--epochs", "100000",
    "--eval-every", "100000", "--progress", "none",
)  # fmt: skip


@dataclass
class Block:
    """Part of a run with one scrape rate; seconds and processor seconds are per step."""

    rate: int
    steps: int
    step_seconds: float
    processor_seconds: float
    answer_seconds: list[float] = field(default_factory=list)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="resnet9", metavar="NAME", help=(
        "network to train (default: %(default)s)"
    ))  # fmt: skip
    parser.add_argument("--batch-size", type=int, default=16, metavar="N", help=(
        "images per step (default: %(default)s)"
    ))  # fmt: skip
    parser.add_argument("--rounds", type=int, default=6, metavar="N", help=(
        "number of rounds; each round measures every rate (default: %(default)s)"
    ))  # fmt: skip
    parser.add_argument("--seconds", type=float, default=5.0, metavar="X", help=(
        "seconds per rate and round (default: %(default)s)"
    ))  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")


def run(options: argparse.Namespace) -> int:
    if options.rounds < 1 or not 0 < options.seconds < math.inf:
        raise ConfigError("--rounds and --seconds must be above 0")
    if options.json:
        check_output_path("--json", options.json)
    with _training(options) as run:
        run.wait_for_steps(5)  # the first steps include one-time work
        rates = ProgressBar([*RATES] * options.rounds, "measuring", leave=False)
        blocks = [run.measure(rate, options.seconds) for rate in rates]
    print(render(blocks))
    if options.json:
        write_json(options.json, [asdict(block) for block in blocks])
    return 0


def render(blocks: list[Block]) -> str:
    """A row per rate, and the resulting cost of one scrape per second."""
    by_rate = {rate: [block for block in blocks if block.rate == rate] for rate in RATES}
    time_ratio = {rate: _ratio(by_rate, rate, "step_seconds") for rate in RATES}
    work_ratio = {rate: _ratio(by_rate, rate, "processor_seconds") for rate in RATES}
    rows = []
    for rate, turns in by_rate.items():
        answers = [1e3 * seconds for block in turns for seconds in block.answer_seconds]
        rows.append([
            str(rate),
            f"{1e3 * median(block.step_seconds for block in turns):.1f}",
            f"{time_ratio[rate]:.4f}",
            f"{1e3 * median(block.processor_seconds for block in turns):.1f}",
            f"{work_ratio[rate]:.4f}",
            f"{median(answers):.1f}" if answers else "-",
            f"{max(answers):.1f}" if answers else "-",
        ])  # fmt: skip
    header = ["scrapes/s", "step ms", "ratio", "processor ms", "ratio", "response ms", "max ms"]
    cost = _scrape_processor_seconds(by_rate)
    return (
        f"{render_table(header, rows)}\n\n"
        f"a scrape takes {1e3 * cost:.2f} ms of processor time:"
        f" at one scrape per second, {cost:.2%} of one core"
    )


def _scrape_processor_seconds(by_rate: dict[int, list[Block]]) -> float:
    """Additional processor time per scrape, at the highest rate compared with no scrapes."""
    pairs = zip(by_rate[RATES[-1]], by_rate[RATES[0]], strict=True)
    return median(
        (many.processor_seconds - none.processor_seconds) * many.steps / len(many.answer_seconds)
        for many, none in pairs
    )


def _ratio(by_rate: dict[int, list[Block]], rate: int, name: str) -> float:
    """Ratio to the block without scrapes of the same round, which cancels slow drifts."""
    pairs = zip(by_rate[rate], by_rate[RATES[0]], strict=True)
    return median(getattr(one, name) / getattr(other, name) for one, other in pairs)


@contextlib.contextmanager
def _training(options: argparse.Namespace) -> Iterator[_Run]:
    """Start a training run in a temporary folder."""
    with contextlib.closing(listen("127.0.0.1", 0, option="", who="a measurement")) as probe:
        port = probe.getsockname()[1]
    given = ["--model", options.model, "--batch-size", str(options.batch_size)]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "edgeddl.train", *TRAINING, *given]
        place = ["--run-dir", str(Path(folder) / "run"), "--metrics-port", str(port)]
        process = subprocess.Popen([*command, *place], stdout=subprocess.DEVNULL)
        try:
            yield _Run(process, f"http://127.0.0.1:{port}/metrics")
        finally:
            process.kill()  # its folder is deleted, so no clean end is needed
            process.wait()


class _Run:
    """A training process that is scraped."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self._process = process
        self._url = url

    def wait_for_steps(self, steps: int) -> None:
        while self._process.poll() is None:
            with contextlib.suppress(OSError):  # not listening yet
                if self._steps()[0] >= steps:
                    return
            time.sleep(0.2)
        raise self._ended()

    def _ended(self) -> EdgeddlError:
        return EdgeddlError("the measured training run has ended", hint="see its message above")

    def measure(self, rate: int, seconds: float) -> Block:
        steps, step_seconds = self._steps()
        processor = self._processor_seconds()
        answers = self._scrape(rate, seconds)
        processor = self._processor_seconds() - processor
        later_steps, later_seconds = self._steps()
        taken = later_steps - steps
        if not taken:
            raise EdgeddlError(f"no step ended within {seconds:g} s", hint="use a larger --seconds")
        return Block(
            rate, taken, (later_seconds - step_seconds) / taken, processor / taken, answers
        )

    def _scrape(self, rate: int, seconds: float) -> list[float]:
        """Scrape at a rate for some time; returns the time of each response."""
        end, answers = time.monotonic() + seconds, []
        while (left := end - time.monotonic()) > 0:
            started = time.monotonic()
            if rate:
                self._get()
                answers.append(time.monotonic() - started)
                left = 1 / rate - answers[-1]
            time.sleep(max(left, 0))
        return answers

    def _steps(self) -> tuple[int, float]:
        """Number of steps so far and their total time, from the metrics of the run."""
        values = dict(line.rsplit(" ", 1) for line in self._get().splitlines() if line[:1] != "#")
        sums = {name.partition("{")[0]: float(value) for name, value in values.items()}
        name = names.STEP_SECONDS.name
        return int(sums.get(f"{name}_count", 0)), sums.get(f"{name}_sum", 0.0)

    def _get(self) -> str:
        try:
            with urllib.request.urlopen(self._url, timeout=30) as answer:
                return answer.read().decode()
        except OSError:
            if self._process.poll() is not None:
                raise self._ended() from None
            raise

    def _processor_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
