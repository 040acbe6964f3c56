"""Common parts of the baselines' workers: options, the loop over steps, and the report.

Also imported by PyTorch's environment, which has no edgeddl.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from baselines.workload import make_batch

Record = dict[str, Any]


class Trainer(Protocol):
    """Trains a network together with the other ranks, on the same batch in every step."""

    def step(self) -> float:
        """Run forward, loss, backward, all-reduce and update; return the loss."""

    def waited(self) -> float:
        """Return the seconds of the last step in which this rank only waited for gradients."""

    def parameters(self) -> Iterable[np.ndarray]:
        """Return the current parameters."""


def parse_task() -> argparse.Namespace:
    """Parse the arguments that `systems` passes to a worker."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--stem", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--warm-up", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    return parser.parse_args()


def own_batch(images: int) -> tuple[np.ndarray, np.ndarray]:
    """Return this rank's images and labels, which differ from those of other ranks."""
    return make_batch(images, seed=int(os.environ["OMPI_COMM_WORLD_RANK"]))


def measure(trainer: Trainer, task: argparse.Namespace) -> Record:
    """Run all steps; return times of the steps after the warm-up, and all losses."""
    seconds, waits, losses = [], [], []
    for _ in range(task.warm_up + task.steps):
        started = time.perf_counter()
        losses.append(trainer.step())
        seconds.append(time.perf_counter() - started)
        waits.append(trainer.waited())
    arrays = [np.ascontiguousarray(array) for array in trainer.parameters()]
    return {
        "host": socket.gethostname(),
        "step_seconds": seconds[task.warm_up :],
        "wait_seconds": waits[task.warm_up :],
        "losses": losses,
        "gradient_bytes": sum(array.nbytes for array in arrays),
        "parameters_checksum": _checksum(arrays),
    }


def write_ranks(task: argparse.Namespace, ranks: list[Record]) -> None:
    """Write the records of all ranks to one file; called by one rank."""
    task.output.write_text(json.dumps({"ranks": ranks}))


def _checksum(arrays: Iterable[np.ndarray]) -> int:
    """Return a checksum that is equal for equal parameters."""
    checksum = 0
    for array in arrays:
        checksum = zlib.crc32(array.data, checksum)
    return checksum
