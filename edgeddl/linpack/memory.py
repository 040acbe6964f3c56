"""How much memory a matrix may take: what the machine has left, and what cgroups allow."""

from __future__ import annotations

from pathlib import Path

from edgeddl.errors import LinpackError
from edgeddl.hardware import allowed_bytes


def available_bytes(root: Path = Path("/")) -> int:
    """What can be taken without swapping and without being killed."""
    allowed = allowed_bytes(root)
    if allowed is None:
        raise LinpackError(
            f"{root / 'proc/meminfo'} does not say how much memory there is",
            hint="--size N says how large the problem shall be",
        )
    return allowed
