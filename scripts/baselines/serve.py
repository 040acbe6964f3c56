"""The worker's end of a pipe: handles requests one at a time."""

from __future__ import annotations

import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def serve(handlers: Mapping[str, Callable[..., Any]]) -> None:
    """Handle requests, each a name and keyword arguments, until the pipe is closed."""
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with the replies
    while True:
        try:
            name, arguments = pickle.load(requests)
        except EOFError:
            return
        try:
            reply = (True, handlers[name](**arguments))
        except Exception:
            reply = (False, traceback.format_exc())
        pickle.dump(reply, replies)
        replies.flush()


def serve_steps(
    prepare: Callable[..., Callable[[], object]], **more_handlers: Callable[..., Any]
) -> None:
    """Serve timed calls: `prepare` returns the function that `step` calls."""
    prepared: list[Callable[[], object]] = []

    def handle_prepare(**arguments: Any) -> None:
        prepared.clear()  # frees memory before the next one needs it
        prepared.append(prepare(**arguments))

    def handle_step(calls: int = 1) -> float:
        """Return the mean seconds per call."""
        (call,) = prepared
        started = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - started) / calls

    serve(
        {
            "prepare": handle_prepare,
            "step": handle_step,
            "peak_memory_bytes": peak_memory_bytes,
            **more_handlers,
        }
    )


def peak_memory_bytes() -> int:
    """Return the peak memory of this process; ru_maxrss would include its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1024
