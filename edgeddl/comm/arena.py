"""Flat buffers for all parameters and all gradients, and the views into them.

The model sees arrays of its parameters' shapes; exchange and optimizer see one long array.
"""

from __future__ import annotations

import numpy as np

from edgeddl.comm.bucket import ALIGNMENT, ITEM_BYTES, Bucket, BucketPlan


class Arena:
    """Parameters and gradients of one model, in the layout of a bucket plan."""

    def __init__(self, plan: BucketPlan) -> None:
        self.plan = plan
        self.parameters = aligned_zeros(plan.length)
        self.gradients = aligned_zeros(plan.length)
        self._slots = {slot.spec.name: slot for slot in plan.all_slots}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._slots)

    def parameter(self, name: str) -> np.ndarray:
        """A view of the parameter, in its own shape."""
        return self.view(self.parameters, name)

    def gradient(self, name: str) -> np.ndarray:
        """A view of the parameter's gradient, in the parameter's shape."""
        return self.view(self.gradients, name)

    def view(self, flat: np.ndarray, name: str) -> np.ndarray:
        """A view of a parameter's part of any flat array with this layout."""
        slot = self._slots[name]
        shape, axes = slot.spec.shape, slot.spec.memory_axes
        in_memory = flat[slot.start : slot.stop].reshape([shape[axis] for axis in axes])
        return in_memory.transpose(np.argsort(axes)) if axes else in_memory

    def flat_gradient(self, bucket: Bucket) -> np.ndarray:
        """The gradients of a bucket, including padding."""
        return self.gradients[bucket.start : bucket.stop]


def aligned_zeros(length: int) -> np.ndarray:
    """Zeros that start on a cache line, so that every slot does."""
    padded = np.zeros(length + ALIGNMENT, np.float32)
    offset = -(padded.ctypes.data // ITEM_BYTES) % ALIGNMENT
    return padded[offset : offset + length]
