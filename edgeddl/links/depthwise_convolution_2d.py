"""Depthwise convolution layer, as chainer.links.DepthwiseConvolution2D."""

from __future__ import annotations

from typing import Any

from edgeddl import functions
from edgeddl.chainer_compat import L
from edgeddl.links.direct_call import DirectCall


class DepthwiseConvolution2D(DirectCall, L.DepthwiseConvolution2D):
    """Chainer's link with edgeddl's function.

    Convolution2D with as many groups as channels is faster: the kernels take its W
    (C*M, 1, kh, kw), whereas Chainer's (M, C, kh, kw) has to be rearranged in each pass.
    """

    def forward(self, x: Any) -> Any:
        """Applies the layer to x (N, C, H, W)."""
        if self.W.array is None:
            self._initialize_params(x.shape[1])
        return functions.depthwise_convolution_2d(x, self.W, self.b, self.stride, self.pad)
