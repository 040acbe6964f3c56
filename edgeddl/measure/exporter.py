"""python -m edgeddl bench exporter: what scraping costs a training run.

A real run is started and scraped at rates that take turns: never, once a second, and far more
often, so that the cost stands out of the machine's noise. How long steps took, the run tells
itself; processor time comes from the kernel and hardly depends on what else the machine does.
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

RATES = (0, 1, 20)  # scrapes a second
TRAINING = (
    "--dataset", "shapes", "--limit-train", "2000", "--limit-test", "16", "--epochs", "100000",
    "--eval-every", "100000", "--progress", "none",
)  # fmt: skip


@dataclass
class Block:
    """A stretch of a run with one rate of scrapes: seconds and processor seconds of a step."""

    rate: int
    steps: int
    step_seconds: float
    processor_seconds: float
    answer_seconds: list[float] = field(default_factory=list)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="resnet9", metavar="NAME", help="(%(default)s)")
    parser.add_argument("--batch-size", type=int, default=16, metavar="N", help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=6, metavar="N", help=(
        "how often each rate has its turn (%(default)s)"
    ))  # fmt: skip
    parser.add_argument("--seconds", type=float, default=5.0, metavar="X", help=(
        "how long a turn takes (%(default)s)"
    ))  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")


def run(options: argparse.Namespace) -> int:
    if options.rounds < 1 or not 0 < options.seconds < math.inf:
        raise ConfigError("--rounds and --seconds must be above 0")
    if options.json:
        check_output_path("--json", options.json)
    with _training(options) as run:
        run.wait_for_steps(5)  # the first ones pay for what is done once
        turns = ProgressBar([*RATES] * options.rounds, "turns", leave=False)
        blocks = [run.measure(rate, options.seconds) for rate in turns]
    print(render(blocks))
    if options.json:
        write_json(options.json, [asdict(block) for block in blocks])
    return 0


def render(blocks: list[Block]) -> str:
    """A line for each rate, and what follows for one scrape a second."""
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
    header = ["scrapes/s", "step ms", "ratio", "processor ms", "ratio", "answer ms", "longest"]
    cost = _scrape_processor_seconds(by_rate)
    return (
        f"{render_table(header, rows)}\n\n"
        f"a scrape takes {1e3 * cost:.2f} ms of processor time:"
        f" once a second, {cost:.2%} of one core"
    )


def _scrape_processor_seconds(by_rate: dict[int, list[Block]]) -> float:
    """What a step costs more with most scrapes than in the same round without, for each of them."""
    pairs = zip(by_rate[RATES[-1]], by_rate[RATES[0]], strict=True)
    return median(
        (many.processor_seconds - none.processor_seconds) * many.steps / len(many.answer_seconds)
        for many, none in pairs
    )


def _ratio(by_rate: dict[int, list[Block]], rate: int, name: str) -> float:
    """To the turn without scrapes in the same round: what changes slowly falls out."""
    pairs = zip(by_rate[rate], by_rate[RATES[0]], strict=True)
    return median(getattr(one, name) / getattr(other, name) for one, other in pairs)


@contextlib.contextmanager
def _training(options: argparse.Namespace) -> Iterator[_Run]:
    """A run of its own, in a folder that is removed with it."""
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
            process.kill()  # its folder goes too: there is nothing to finish
            process.wait()


class _Run:
    """A training process, seen from outside."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self._process = process
        self._url = url

    def wait_for_steps(self, steps: int) -> None:
        while self._process.poll() is None:
            with contextlib.suppress(OSError):  # does not listen yet
                if self._steps()[0] >= steps:
                    return
            time.sleep(0.2)
        raise self._ended()

    def _ended(self) -> EdgeddlError:
        return EdgeddlError("the run to be measured has ended", hint="its message is above")

    def measure(self, rate: int, seconds: float) -> Block:
        steps, step_seconds = self._steps()
        processor = self._processor_seconds()
        answers = self._scrape(rate, seconds)
        processor = self._processor_seconds() - processor
        later_steps, later_seconds = self._steps()
        taken = later_steps - steps
        if not taken:
            raise EdgeddlError(f"no step ended within {seconds:g} s", hint="give larger --seconds")
        return Block(
            rate, taken, (later_seconds - step_seconds) / taken, processor / taken, answers
        )

    def _scrape(self, rate: int, seconds: float) -> list[float]:
        """Scrape at a rate for so long; how long each answer took."""
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
        """Steps so far and their seconds, as the run tells."""
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
