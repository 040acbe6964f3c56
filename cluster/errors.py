"""What can go wrong with a cluster, in words for its user."""

from __future__ import annotations


class ClusterError(Exception):
    """A message for the user: what, where, and a hint how to mend it."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}\nhint: {hint}" if hint else message)
