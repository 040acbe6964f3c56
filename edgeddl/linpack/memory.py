"""Memory available for the matrix, within the limits of cgroups."""

from __future__ import annotations

from pathlib import Path

from edgeddl.errors import LinpackError
from edgeddl.hardware import allowed_bytes


def available_bytes(root: Path = Path("/")) -> int:
    """Memory that can be used without swapping or being killed."""
    allowed = allowed_bytes(root)
    if allowed is None:
        raise LinpackError(
            f"cannot read the available memory from {root / 'proc/meminfo'}",
            hint="set it with --memory-mib N, or the problem size with --size N",
        )
    return allowed
