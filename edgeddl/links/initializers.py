"""Initial weights drawn from a given random generator.

Chainer's initialisers use NumPy's global state, which any library may change. A model that passes
its links a generator always starts with the same weights.
"""

from __future__ import annotations

import math

import numpy as np

from edgeddl.chainer_compat import chainer


class ScaledNormal(chainer.Initializer):
    """Normal numbers with standard deviation sqrt(gain / fan_in).

    fan_in is the number of inputs to one output: C*kh*kw. Gain 2 is He's, for layers before a
    ReLU; gain 1 is LeCun's, Chainer's default.
    """

    def __init__(self, rng: np.random.Generator, gain: float) -> None:
        super().__init__()
        self.rng, self.gain = rng, gain

    def __call__(self, array: np.ndarray) -> None:
        fan_in = math.prod(array.shape[1:])
        deviation = math.sqrt(self.gain / fan_in)
        array[...] = self.rng.standard_normal(array.shape, np.float32) * np.float32(deviation)


def weights(initial: object, rng: np.random.Generator | None, gain: float) -> object:
    """The `initialW` for Chainer: the given one, or random numbers from `rng`.

    Without either it is None: Chainer's default, LeCun's rule with NumPy's global state.
    """
    return ScaledNormal(rng, gain) if initial is None and rng is not None else initial
