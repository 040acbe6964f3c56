"""events.jsonl of a run: read it, and report it as a table and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from edgeddl.report.cli import describe_runs, finite, render_results
from edgeddl.report.run import read_runs
from fuzzing.mutation import mutate

RANK = {
    "seconds": 2.0, "data": 0.1, "forward": 0.5, "backward": 0.9, "allreduce_wait": 0.4,
    "update": 0.1, "images": 16, "memory_bytes": 2**20, "temperature_celsius": 60.0,
    "clock_hertz": 1.5e9, "throttling": 0,
}  # fmt: skip
EVENTS = (
    {"event": "start", "time": 1000.0, "format": 1, "step": 0, "total_steps": 2,
     "options": {"epochs": 2}, "ranks": [{"host": "a", "cpu": "c", "threads": 1}]},
    {"event": "steps", "time": 1002.0, "step": 1, "losses": [2.5, None], "learning_rate": 0.1,
     "told_steps": 2, "ranks": [RANK]},
    {"event": "epoch", "time": 1004.0, "epoch": 1, "step": 2, "accuracy": 0.5},
    {"event": "end", "time": 1005.0, "outcome": "finished", "final_accuracy": 0.5},
)  # fmt: skip
SAMPLE = "".join(json.dumps(event) + "\n" for event in EVENTS).encode()
TOKENS = (
    *(b"[", b"{", b'{"a":', b"null", b"NaN", b"Infinity", b"\n", b"\0", b'"event": "start", '),
    *(b"}\n{", b"[]", b'"', b"\\ud800", b"1e400", b"-", b"\xff", b"\xe2\x80\xa8"),
)


class _Events:
    def __init__(self, folder: Path) -> None:
        self._run = folder / "run"
        self._run.mkdir(exist_ok=True)

    def make(self, random: Random) -> bytes:
        return mutate(random, SAMPLE, TOKENS)

    def check(self, data: bytes) -> None:
        (self._run / "events.jsonl").write_bytes(data)
        runs = read_runs([self._run])
        json.dumps(finite(describe_runs(runs)), allow_nan=False)
        render_results(runs)


make_target = _Events
