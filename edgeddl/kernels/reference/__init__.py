"""The kernels in plain NumPy: always complete, and the oracle of every faster one.

They take any strides and give channels-last results (see layout.py). Nothing is checked here: the
entry points in `edgeddl.kernels` do that, once for all implementations.
"""

from edgeddl.kernels.reference.convolution import (
    convolution_forward,
    convolution_input_gradient,
    convolution_weight_gradient,
)
from edgeddl.kernels.reference.elementwise import add, channel_sums, relu_backward, relu_forward
from edgeddl.kernels.reference.half import decode_half, encode_half
from edgeddl.kernels.reference.linear import (
    linear_forward,
    linear_input_gradient,
    linear_weight_gradient,
)
from edgeddl.kernels.reference.loss import softmax_cross_entropy
from edgeddl.kernels.reference.low_rank import (
    low_rank_left,
    low_rank_orthonormalise,
    low_rank_product,
    low_rank_right,
    low_rank_subtract,
)
from edgeddl.kernels.reference.normalization import (
    batch_normalization_backward,
    batch_normalization_forward,
    batch_normalization_prologue,
)
from edgeddl.kernels.reference.optimizer import momentum_sgd, momentum_sgd_of_products
from edgeddl.kernels.reference.pooling import (
    average_pooling_backward,
    average_pooling_forward,
    global_average_backward,
    global_average_forward,
    max_pooling_backward,
    max_pooling_forward,
)
from edgeddl.kernels.reference.ring import ring_sum

__all__ = [
    "add",
    "average_pooling_backward",
    "average_pooling_forward",
    "batch_normalization_backward",
    "batch_normalization_forward",
    "batch_normalization_prologue",
    "channel_sums",
    "convolution_forward",
    "convolution_input_gradient",
    "convolution_weight_gradient",
    "decode_half",
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
