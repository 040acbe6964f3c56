"""Measures the compute cost of gradient compression and the transfer time it saves.

    OPENBLAS_NUM_THREADS=1 python scripts/bench_compression.py [--json FILE]

Reduces the gradients of ResNet-18 (44.7 MB) bucket by bucket as one of N ranks whose messages are
not sent. What remains is the work of the communication thread: conversions and matrix products. The
additions are part of every all-reduce, and PowerSGD's last product is part of the update, so both
are left out. Compression pays off on links slower than the break-even rate.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, cast

import numpy as np

from edgeddl.comm.arena import Arena
from edgeddl.comm.bucket import BucketPlan, plan_buckets
from edgeddl.comm.communicator import Communicator, optimal_bytes
from edgeddl.comm.make_exchange import bucket_bytes
from edgeddl.comm.policies import find_policy
from edgeddl.config import TrainConfig
from edgeddl.models import build_model
from edgeddl.table import render_table
from edgeddl.training.parameters import observe_parameters

LINKS_MBIT = (940, 100)
REPETITIONS = 5


class NowhereCommunicator:
    """One of N ranks whose messages are not sent."""

    rank = 0

    def __init__(self, size: int) -> None:
        self.size = size

    def allreduce(self, array: np.ndarray, algorithm: str | None = None) -> None:
        """Do nothing."""


def plan_resnet18() -> BucketPlan:
    specs = observe_parameters(build_model("resnet18", classes=10), (3, 32, 32), 10)
    return plan_buckets(specs, bucket_bytes(TrainConfig()))


def measure(plan: BucketPlan, compression: str, size: int) -> dict[str, Any]:
    """Measure a compression; seconds are the minimum over a few steps."""
    arena, communicator = Arena(plan), cast(Communicator, NowhereCommunicator(size))
    policy = find_policy(compression)(plan, TrainConfig().compression_rank)
    policy.leave_factored()
    gradients = np.random.default_rng(0).normal(scale=1e-3, size=plan.length).astype(np.float32)
    seconds = []
    for _ in range(REPETITIONS):
        arena.gradients[...] = gradients
        started = time.perf_counter()
        sent_bytes = sum(
            policy.sum(communicator, bucket, arena.flat_gradient(bucket)) for bucket in plan.buckets
        )
        seconds.append(time.perf_counter() - started)
    saved_bytes = optimal_bytes(gradients.nbytes, size) - sent_bytes
    return {
        "compression": compression,
        "ranks": size,
        "seconds": min(seconds),
        "sent_bytes": sent_bytes,
        "saved_seconds": {str(link): saved_bytes * 8 / (link * 1e6) for link in LINKS_MBIT},
        "break_even_mbit": saved_bytes * 8 / min(seconds) / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the results to this file"
    )
    options = parser.parse_args()
    plan = plan_resnet18()
    results = [measure(plan, kind, size) for kind in ("fp16", "powersgd") for size in (2, 4, 8)]
    saved = (f"saved at {link} Mbit/s" for link in LINKS_MBIT)
    headings = ("compression", "ranks", "sent", "compute", *saved, "break-even")
    rows = [
        [
            result["compression"],
            str(result["ranks"]),
            f"{result['sent_bytes'] / 1e6:.1f} MB",
            f"{result['seconds'] * 1e3:.0f} ms",
            *(f"{seconds * 1e3:.0f} ms" for seconds in result["saved_seconds"].values()),
            f"{result['break_even_mbit']:,.0f} Mbit/s",
        ]
        for result in results
    ]
    print(render_table(headings, rows))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
