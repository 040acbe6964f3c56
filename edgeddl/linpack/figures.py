"""What was measured on one machine, and on all of a cluster together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stream:
    """Memory bandwidth in bytes a second, of one thread (hpcc's SingleSTREAM)."""

    copy: float
    triad: float


@dataclass(frozen=True)
class Link:
    """hpcc's ping-pong between pairs of nodes: the worst pair and the mean over pairs.

    Latency is one way, of 8 bytes; the bandwidth is that of messages of 2 MB.
    """

    latency_seconds: float
    bytes_per_second: float
    mean_latency_seconds: float
    mean_bytes_per_second: float


@dataclass(frozen=True)
class NodeFigures:
    """Of one machine alone. Residual: the worst; the rest is of the best repeat.

    processor_share: of its threads' time, what the run got of the processor: less than one where
    other programs, or a limit, have taken the rest. None: not known.
    """

    engine: str
    blas: str
    threads: int
    n: int
    seconds: float
    gflops: float
    median_gflops: float
    residual: float
    passed: bool
    processor_share: float | None
    throttled: bool | None
    hottest_celsius: float | None
    stream: Stream | None = None
