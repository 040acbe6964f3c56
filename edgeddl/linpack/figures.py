"""Measured values of one machine and of a cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stream:
    """Memory bandwidth of one thread in bytes per second (SingleSTREAM of hpcc)."""

    copy: float
    triad: float


@dataclass(frozen=True)
class Link:
    """Ping-pong of hpcc between pairs of nodes: the worst pair and the mean over pairs.

    Latency is one-way, for 8 bytes; bandwidth is for messages of 2 MB.
    """

    latency_seconds: float
    bytes_per_second: float
    mean_latency_seconds: float
    mean_bytes_per_second: float


@dataclass(frozen=True)
class NodeFigures:
    """Measured values of one machine, of the best repeat; the residual is the worst of all repeats.

    processor_share: processor time over wall time and threads. It is below 1 if other programs or a
    limit took the rest; None if unknown.
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
