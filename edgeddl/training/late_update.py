"""The part of an update that is left when its step has ended.

Gradients of the last layers are the first to be there, and their parameters the last to be needed
again. Sent last, they travel while the next step's forward pass is at other layers; until they are
there, and these layers updated, parameters are not all those of the last step.
"""

from __future__ import annotations

from collections.abc import Callable

from edgeddl.training.clock import StepClock


class LateUpdate:
    """What is left of an update, if anything, to be done by the first who needs it."""

    def __init__(self) -> None:
        self._rest: Callable[[StepClock], None] | None = None

    def put_off(self, rest: Callable[[StepClock], None]) -> None:
        """Leave this to whoever settles."""
        self._rest = rest

    def settle(self, clock: StepClock | None = None) -> None:
        """Do what is left. Who reads parameters between steps calls this first."""
        rest, self._rest = self._rest, None
        if rest is not None:
            rest(clock or StepClock())
