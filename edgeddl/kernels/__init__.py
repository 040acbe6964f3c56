"""Entry points of the kernels: NumPy in, NumPy out; they check, an implementation computes.

Shapes are Chainer's: activations (N, C, H, W), convolution weights (K, C, kh, kw); all numbers are
float32. Results are channels last in memory, arguments may have any strides (see layout.py).
N images, C input channels, K output channels, H x W pixels, kh x kw window.

The modules of entry points have the names of those that compute, in native/ and reference/.
"""

from edgeddl.kernels.convolution import (
    convolution_forward,
    convolution_input_gradient,
    convolution_weight_gradient,
)
from edgeddl.kernels.elementwise import add, channel_sums, relu_backward, relu_forward
from edgeddl.kernels.half import decode_half, encode_half
from edgeddl.kernels.linear import linear_forward, linear_input_gradient, linear_weight_gradient
from edgeddl.kernels.loss import softmax_cross_entropy
from edgeddl.kernels.low_rank import (
    low_rank_left,
    low_rank_orthonormalise,
    low_rank_product,
    low_rank_right,
    low_rank_subtract,
)
from edgeddl.kernels.normalization import (
    batch_normalization_backward,
    batch_normalization_forward,
    batch_normalization_prologue,
)
from edgeddl.kernels.optimizer import momentum_sgd, momentum_sgd_of_products
from edgeddl.kernels.pooling import (
    average_pooling_backward,
    average_pooling_forward,
    global_average_backward,
    global_average_forward,
    max_pooling_backward,
    max_pooling_forward,
)
from edgeddl.kernels.ring import ring_sum
from edgeddl.kernels.selection import chosen, describe

__all__ = [
    "add",
    "average_pooling_backward",
    "average_pooling_forward",
    "batch_normalization_backward",
    "batch_normalization_forward",
    "batch_normalization_prologue",
    "channel_sums",
    "chosen",
    "convolution_forward",
    "convolution_input_gradient",
    "convolution_weight_gradient",
    "decode_half",
    "describe",
    "encode_half",
    "global_average_backward",
    "global_average_forward",
    "linear_forward",
    "linear_input_gradient",
    "linear_weight_gradient",
    "low_rank_left",
    "low_rank_orthonormalise",
    "low_rank_product",
    "low_rank_right",
    "low_rank_subtract",
    "max_pooling_backward",
    "max_pooling_forward",
    "momentum_sgd",
    "momentum_sgd_of_products",
    "relu_backward",
    "relu_forward",
    "ring_sum",
    "softmax_cross_entropy",
]
