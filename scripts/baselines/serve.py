"""The worker's end of a pipe: questions come in, answers go out, one at a time."""

from __future__ import annotations

import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def serve(answers: Mapping[str, Callable[..., Any]]) -> None:
    """Answer questions, each a name and keyword arguments, until the pipe is closed."""
    questions, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get in between the answers
    while True:
        try:
            name, arguments = pickle.load(questions)
        except EOFError:
            return
        try:
            reply = (True, answers[name](**arguments))
        except Exception:
            reply = (False, traceback.format_exc())
        pickle.dump(reply, replies)
        replies.flush()


def serve_steps(
    prepare: Callable[..., Callable[[], object]], **more_answers: Callable[..., Any]
) -> None:
    """Serve something to be timed: `prepare` gives what `step` calls."""
    prepared: list[Callable[[], object]] = []

    def answer_prepare(**arguments: Any) -> None:
        prepared.clear()  # before the next one needs memory
        prepared.append(prepare(**arguments))

    def answer_step(calls: int = 1) -> float:
        """Seconds of one call, the mean over so many."""
        (call,) = prepared
        started = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - started) / calls

    serve(
        {
            "prepare": answer_prepare,
            "step": answer_step,
            "peak_memory_bytes": peak_memory_bytes,
            **more_answers,
        }
    )


def peak_memory_bytes() -> int:
    """The most memory this process has had; unlike ru_maxrss, nothing of who started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1024
