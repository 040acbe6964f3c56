"""What the rivals' workers have in common: their task, the loop over steps and what they report.

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
    """Trains a network together with the other ranks, always on the same batch."""

    def step(self) -> float:
        """Forward, loss, backward, sum over ranks, update; returns the loss."""

    def waited(self) -> float:
        """Seconds of the last step in which this rank did nothing but wait for gradients."""

    def parameters(self) -> Iterable[np.ndarray]:
        """The network's parameters as they are now."""


def parse_task() -> argparse.Namespace:
    """The arguments that `systems` gives to a worker."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--stem", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--warm-up", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    return parser.parse_args()


def own_batch(images: int) -> tuple[np.ndarray, np.ndarray]:
    """This rank's images and labels: no two ranks have the same."""
    return make_batch(images, seed=int(os.environ["OMPI_COMM_WORLD_RANK"]))


def measure(trainer: Trainer, task: argparse.Namespace) -> Record:
    """Take all steps; times are those of the steps after the warm-up, losses those of all."""
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
    """All ranks' records into one file: one rank does this."""
    task.output.write_text(json.dumps({"ranks": ranks}))


def _checksum(arrays: Iterable[np.ndarray]) -> int:
    """By which ranks that hold the same parameters are known."""
    checksum = 0
    for array in arrays:
        checksum = zlib.crc32(array.data, checksum)
    return checksum
