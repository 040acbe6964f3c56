"""Convolution followed by batch normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeddl.chainer_compat import chainer
from edgeddl.links.batch_normalization import BatchNormalization
from edgeddl.links.convolution_2d import Convolution2D
from edgeddl.links.direct_call import DirectCall


class ConvolutionBN(DirectCall, chainer.Chain):
    """A convolution that keeps the image size (apart from the stride), then a normalisation.

    It has no bias: the normalisation would cancel it.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        ksize: int,
        stride: int = 1,
        *,
        rng: np.random.Generator,
    ) -> None:
        super().__init__()
        with self.init_scope():
            self.convolution = Convolution2D(
                in_channels, out_channels, ksize, stride, pad=ksize // 2, nobias=True, rng=rng
            )
            self.normalization = BatchNormalization(out_channels)

    def forward(
        self,
        x: Any,
        *,
        after: ConvolutionBN | None = None,
        relu: bool = False,
        residual: Any = None,
    ) -> Any:
        """Applies both; then a ReLU, or the addition of a residual and a ReLU.

        With `after`, x is the result of that layer's convolution: its normalisation and a ReLU are
        applied as x is read.
        """
        h = self.convolution(x, after=None if after is None else after.normalization)
        return self.normalization(h, relu=relu, residual=residual)
