"""Counter-based random numbers, without state.

A draw is a hash of its key (seed, epoch, stream) and a counter (a position). It does not depend on
the number, order or origin of earlier draws. All arithmetic is on integers modulo 2**64, so every
machine and every NumPy release gives the same numbers. NumPy's own generators guarantee that only
for raw bits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

UInt64s = npt.NDArray[np.uint64]

# Steele, Lea, Flood: Fast splittable pseudorandom number generators (2014): SplitMix64's
# increment (2**64 divided by the golden ratio) and the multipliers of its finaliser.
_INCREMENT = 0x9E3779B97F4A7C15
_MULTIPLIER_1 = 0xBF58476D1CE4E5B9
_MULTIPLIER_2 = 0x94D049BB133111EB
_MASK = 2**64 - 1


def _mix_int(value: int) -> int:
    value = ((value ^ (value >> 30)) * _MULTIPLIER_1) & _MASK
    value = ((value ^ (value >> 27)) * _MULTIPLIER_2) & _MASK
    return value ^ (value >> 31)


def derive_key(*parts: int) -> int:
    """One 64-bit key from any number of integers; the order matters."""
    key = 0
    for part in parts:
        key = _mix_int((key + _INCREMENT + part) & _MASK)
    return key


def draw_bits(key: int, counters: npt.NDArray[np.integer]) -> UInt64s:
    """64 random bits for each counter."""
    bits = counters.astype(np.uint64)
    bits += np.uint64(1)
    bits *= np.uint64(_INCREMENT)
    bits += np.uint64(key)
    for shift, multiplier in ((30, _MULTIPLIER_1), (27, _MULTIPLIER_2)):
        bits ^= bits >> np.uint64(shift)
        bits *= np.uint64(multiplier)
    bits ^= bits >> np.uint64(31)
    return bits


def draw_integers(key: int, counters: npt.NDArray[np.integer], bound: int) -> npt.NDArray[np.intp]:
    """An integer in [0, bound) for each counter; bound at most 2**31."""
    high = draw_bits(key, counters) >> np.uint64(32)
    return ((high * np.uint64(bound)) >> np.uint64(32)).astype(np.intp)


def draw_uniform(
    key: int, counters: npt.NDArray[np.integer], low: float = 0.0, high: float = 1.0
) -> npt.NDArray[np.float32]:
    """A number in [low, high) for each counter."""
    # A float32 holds 24 bits exactly, so the conversion never rounds.
    unit = (draw_bits(key, counters) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    return unit * np.float32(high - low) + np.float32(low)
