"""Chainer functions over edgeddl's kernels, with the names and arguments of chainer.functions."""

from edgeddl.functions.batch_normalization import batch_normalization, fixed_batch_normalization
from edgeddl.functions.convolution_2d import convolution_2d
from edgeddl.functions.global_average_pooling_2d import global_average_pooling_2d
from edgeddl.functions.linear import linear
from edgeddl.functions.max_pooling_2d import max_pooling_2d
from edgeddl.functions.relu import relu

__all__ = [
    "batch_normalization",
    "convolution_2d",
    "fixed_batch_normalization",
    "global_average_pooling_2d",
    "linear",
    "max_pooling_2d",
    "relu",
]
