"""Ends a run whose numbers have become infinite or NaN, before they reach a checkpoint."""

from __future__ import annotations

import numpy as np

from edgeddl.errors import DivergenceError


def check_finite(what: str, values: float | np.ndarray, step: int) -> None:
    """Raise unless all values, which must be the same on all ranks, are finite."""
    if np.isfinite(values).all():
        return
    found = values if isinstance(values, float) else "not finite"
    raise DivergenceError(
        f"the {what} is {found} at step {step}: training has diverged",
        hint="lower --lr or lengthen --warmup-epochs, and go on from an earlier checkpoint",
    )
