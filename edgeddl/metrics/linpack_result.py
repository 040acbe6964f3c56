"""The last LINPACK result, as `python -m edgeddl linpack` leaves it in linpack.json."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

FORMAT = 1


@dataclass(frozen=True)
class LinpackResult:
    """share_of_peak: None where the processor's peak is not known."""

    engine: str
    gflops: float
    share_of_peak: float | None
    passed: bool
    verdict: str
    timestamp: float


def read_linpack_result(path: Path) -> LinpackResult | None:
    """None where there is no result, or none that this version understands."""
    try:
        value = json.loads(path.read_text())
        share = value["share_of_peak"]
        result = LinpackResult(
            engine=str(value["engine"]),
            gflops=float(value["gflops"]),
            share_of_peak=None if share is None else float(share),
            passed=bool(value["passed"]),
            verdict=str(value["verdict"]),
            timestamp=datetime.fromisoformat(value["time"]).timestamp(),
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return result if value["format"] == FORMAT and math.isfinite(result.gflops) else None
