"""Chainer functions over edgeddl's kernels, with the names and arguments of chainer.functions."""

from edgeddl.functions.add import add
from edgeddl.functions.average_pooling_2d import average_pooling_2d
from edgeddl.functions.batch_normalization import (
    batch_normalization,
    batch_normalization_add_relu,
    batch_normalization_relu,
    fixed_batch_normalization,
    fixed_batch_normalization_add_relu,
    fixed_batch_normalization_relu,
)
from edgeddl.functions.convolution_2d import convolution_2d
from edgeddl.functions.depthwise_convolution_2d import depthwise_convolution_2d
from edgeddl.functions.global_average_pooling_2d import global_average_pooling_2d
from edgeddl.functions.linear import linear
from edgeddl.functions.max_pooling_2d import max_pooling_2d
from edgeddl.functions.normalized_convolution_2d import (
    fixed_normalized_convolution_2d,
    normalized_convolution_2d,
)
from edgeddl.functions.relu import relu
from edgeddl.functions.softmax_cross_entropy import (
    smoothed_softmax_cross_entropy,
    softmax_cross_entropy,
)

__all__ = [
    "add",
    "average_pooling_2d",
    "batch_normalization",
    "batch_normalization_add_relu",
    "batch_normalization_relu",
    "convolution_2d",
    "depthwise_convolution_2d",
    "fixed_batch_normalization",
    "fixed_batch_normalization_add_relu",
    "fixed_batch_normalization_relu",
    "fixed_normalized_convolution_2d",
    "global_average_pooling_2d",
    "linear",
    "max_pooling_2d",
    "normalized_convolution_2d",
    "relu",
    "smoothed_softmax_cross_entropy",
    "softmax_cross_entropy",
]
