"""What half precision on the wire costs in conversions, and what it saves in transfers.

    python scripts/bench_compression.py [--json FILE]

Sums the gradients of ResNet-18 (44.7 MB) bucket by bucket as one of N ranks, with messages that go
nowhere: what is left is the conversion, made by one thread. Half precision pays on links slower
than the break-even.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from edgeddl.comm.compression import HalfPrecisionSum, optimal_bytes
from edgeddl.table import render_table

GRADIENT_COUNT = 11_173_962  # ResNet-18, CIFAR stem
BUCKET_COUNT = 2**20  # 4 MiB
LINKS_MBIT = (940, 100)
REPETITIONS = 5


class NowhereCommunicator:
    """One of N ranks whose messages are not sent."""

    rank = 0

    def __init__(self, size: int) -> None:
        self.size = size

    def alltoall(self, send: np.ndarray, receive: np.ndarray) -> None:
        """Nothing."""

    def allgather_array(self, send: np.ndarray, receive: np.ndarray) -> None:
        """Nothing."""


def measure(size: int) -> dict[str, Any]:
    """Best of a few steps, in seconds."""
    gradients = np.random.default_rng(0).normal(scale=1e-3, size=GRADIENT_COUNT).astype(np.float32)
    bucket_sum, communicator = HalfPrecisionSum(), NowhereCommunicator(size)
    seconds = []
    for _ in range(REPETITIONS):
        buckets = np.array_split(gradients.copy(), GRADIENT_COUNT // BUCKET_COUNT + 1)
        started = time.perf_counter()
        for bucket in buckets:
            bucket_sum(communicator, bucket)  # type: ignore[arg-type]
        seconds.append(time.perf_counter() - started)
    saved_bytes = optimal_bytes(gradients.nbytes, size) / 2
    return {
        "ranks": size,
        "conversion_seconds": min(seconds),
        "saved_bytes": saved_bytes,
        "saved_seconds": {str(link): saved_bytes * 8 / (link * 1e6) for link in LINKS_MBIT},
        "break_even_mbit": saved_bytes * 8 / min(seconds) / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    options = parser.parse_args()
    results = [measure(size) for size in (2, 4, 8)]
    headings = ("ranks", "conversion", *(f"saved at {link} Mbit/s" for link in LINKS_MBIT))
    rows = [
        [
            str(result["ranks"]),
            f"{result['conversion_seconds'] * 1e3:.0f} ms",
            *(f"{seconds * 1e3:.0f} ms" for seconds in result["saved_seconds"].values()),
            f"{result['break_even_mbit']:,.0f} Mbit/s",
        ]
        for result in results
    ]
    print(render_table((*headings, "break-even"), rows))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
