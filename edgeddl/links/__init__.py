"""Layers: Chainer's links over edgeddl's functions, with interchangeable parameters."""

from edgeddl.links.batch_normalization import BatchNormalization
from edgeddl.links.convolution_2d import Convolution2D
from edgeddl.links.convolution_bn import ConvolutionBN
from edgeddl.links.depthwise_convolution_2d import DepthwiseConvolution2D
from edgeddl.links.linear import Linear

__all__ = [
    "BatchNormalization",
    "Convolution2D",
    "ConvolutionBN",
    "DepthwiseConvolution2D",
    "Linear",
]
