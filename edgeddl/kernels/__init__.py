"""The kernels: functions of NumPy arrays, one module per subject.

Each function checks its arguments and calls C (csrc/, declared in csrc/edgeddl.h) or, if no native
library is selected, the function of the same name in reference/.

Shapes are Chainer's: activations (N, C, H, W), convolution weights (K, C, kh, kw); all numbers are
float32. Results are channels last in memory, arguments may have any strides (see layout.py).
N images, C input channels, K output channels, H x W pixels, kh x kw window.
"""

from edgeddl.config import kernel_choice
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
    batch_normalization_fold,
    batch_normalization_forward,
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
from edgeddl.kernels.selection import chosen, describe, select

__all__ = [
    "add",
    "average_pooling_backward",
    "average_pooling_forward",
    "batch_normalization_backward",
    "batch_normalization_fold",
    "batch_normalization_forward",
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
    "softmax_cross_entropy",
]

select(kernel_choice())  # after every module has declared its C functions
