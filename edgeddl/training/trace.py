"""Renders spans of time as JSON for Perfetto and Chrome.

The format is the "Trace Event Format" with complete events (ph "X") in microseconds. A process is a
rank, a thread is a track: the computation of a rank, or one of its channels. The spans of a track
are nested or follow one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from edgeddl.comm.clock_offset import ClockFix

COMPUTE = "compute"


class Span(NamedTuple):
    """Something that a rank did, by its own clock."""

    track: str
    name: str
    start: float
    stop: float
    details: dict[str, Any]


class RankTrace(NamedTuple):
    """A rank's spans, and its clock's offsets to rank 0's clock before and after them."""

    host: str
    spans: list[Span]
    fixes: Sequence[ClockFix]


def render_trace(ranks: Sequence[RankTrace]) -> dict[str, Any]:
    """All ranks in the time of rank 0's clock; the first span starts at 0."""
    begin = min(
        (to_rank_0(span.start, rank.fixes) for rank in ranks for span in rank.spans), default=0.0
    )
    events = [
        event for number, rank in enumerate(ranks) for event in _rank_events(number, rank, begin)
    ]
    uncertainty = max((fix.uncertainty for rank in ranks for fix in rank.fixes), default=0.0)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"clock_uncertainty_microseconds": round(uncertainty * 1e6, 1)},
    }


def to_rank_0(moment: float, fixes: Sequence[ClockFix]) -> float:
    """Convert a time to rank 0's clock, with an offset that drifts linearly between the fixes."""
    first, last = fixes[0], fixes[-1]
    drift = (last.offset - first.offset) / (last.at - first.at) if last.at > first.at else 0.0
    return moment + first.offset + drift * (moment - first.at)


def _rank_events(number: int, rank: RankTrace, begin: float) -> list[dict[str, Any]]:
    tracks = sorted({span.track for span in rank.spans}, key=lambda name: (name != COMPUTE, name))
    names = [_metadata("process_name", number, 0, name=f"rank {number} ({rank.host})")]
    names.append(_metadata("process_sort_index", number, 0, sort_index=number))
    for index, track in enumerate(tracks):
        names.append(_metadata("thread_name", number, index, name=track))
        names.append(_metadata("thread_sort_index", number, index, sort_index=index))
    # Of two spans with the same start, the longer one contains the other.
    spans = sorted(rank.spans, key=lambda span: (span.start, -span.stop))
    return names + [_event(number, tracks.index(s.track), s, rank.fixes, begin) for s in spans]


def _event(
    rank: int, track: int, span: Span, fixes: Sequence[ClockFix], begin: float
) -> dict[str, Any]:
    # Round both ends before computing the duration, so that nested spans stay nested.
    start, stop = (
        round((to_rank_0(moment, fixes) - begin) * 1e9) for moment in (span.start, span.stop)
    )
    return {
        "name": span.name,
        "cat": "compute" if track == 0 else "communication",
        "ph": "X",
        "ts": start / 1000,
        "dur": (stop - start) / 1000,
        "pid": rank,
        "tid": track,
        "args": span.details,
    }


def _metadata(kind: str, rank: int, track: int, **value: Any) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": rank, "tid": track, "args": value}
