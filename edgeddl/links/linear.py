"""Fully connected layer, as chainer.links.Linear."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgeddl import functions
from edgeddl.chainer_compat import L
from edgeddl.links.direct_call import DirectCall
from edgeddl.links.initializers import weights


class Linear(DirectCall, L.Linear):
    """Chainer's link with edgeddl's function.

    Without `initialW`, weights are drawn by LeCun's rule as in Chainer, from `rng` if given.
    """

    def __init__(
        self,
        in_size: int | None,
        out_size: int | None = None,
        nobias: bool = False,
        initialW: Any = None,
        initial_bias: Any = None,
        *,
        rng: np.random.Generator | None = None,
    ) -> None:
        super().__init__(in_size, out_size, nobias, weights(initialW, rng, 1.0), initial_bias)

    def forward(self, x: Any, n_batch_axes: int = 1) -> Any:
        """Applies the layer to x, whose axes after the batch axes are flattened into one."""
        if self.W.array is None:
            self._initialize_params(math.prod(x.shape[n_batch_axes:]))
        return functions.linear(x, self.W, self.b, n_batch_axes=n_batch_axes)
