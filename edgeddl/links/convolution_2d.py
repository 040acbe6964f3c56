"""Convolution layer, as chainer.links.Convolution2D."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeddl import functions
from edgeddl.chainer_compat import L, chainer
from edgeddl.functions.node import array_of
from edgeddl.links.batch_normalization import BatchNormalization
from edgeddl.links.direct_call import DirectCall
from edgeddl.links.initializers import weights
from edgeddl.links.memory_order import order_weights


class Convolution2D(DirectCall, L.Convolution2D):
    """Chainer's link with edgeddl's function; W is in the kernels' memory order.

    Without `initialW`, weights are drawn from `rng`, if given, by He's rule.
    """

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int,
        ksize: Any = None,
        stride: Any = 1,
        pad: Any = 0,
        nobias: bool = False,
        initialW: Any = None,
        initial_bias: Any = None,
        *,
        rng: np.random.Generator | None = None,
        **kwargs: Any,
    ) -> None:
        initial = weights(initialW, rng, gain=2.0)
        # these kernels do not support cuDNN's memory layouts, which Chainer uses on GPUs
        with chainer.using_config("compute_mode", None):
            super().__init__(
                *(in_channels, out_channels, ksize, stride, pad, nobias, initial, initial_bias),
                **kwargs,
            )

    def _initialize_params(self, in_channels: int) -> None:
        super()._initialize_params(in_channels)
        order_weights(self.W)

    def serialize(self, serializer: Any) -> None:
        """As Chainer's; a W without a shape gets the shape that is read."""
        had_no_shape = self.W.array is None
        super().serialize(serializer)
        if had_no_shape:
            order_weights(self.W)

    def forward(self, x: Any, *, after: BatchNormalization | None = None) -> Any:
        """Applies the layer to x (N, C, H, W).

        Beyond Chainer's: with `after`, to the ReLU of that normalisation of x. If this layer has no
        bias, the normalised array is not kept.
        """
        if array_of(self.W) is None:
            self._initialize_params(x.shape[1])
        if getattr(self.W, "update_rule", None) is not None:  # its state may have been loaded
            order_weights(self.W)
        geometry = {
            "stride": self.stride, "pad": self.pad, "dilate": self.dilate, "groups": self.groups,
        }  # fmt: skip
        if after is not None and self.b is None:
            return after.normalize_and_convolve(x, self.W, **geometry)
        if after is not None:
            x = after(x, relu=True)
        return functions.convolution_2d(x, self.W, self.b, **geometry)
