"""The kernels in C. Importing this raises NativeKernelsUnavailable where there is no library.

They take any strides and give channels-last results, as the reference's; nothing is checked here.
"""

from edgeddl.kernels.native.convolution import (
    convolution_forward,
    convolution_input_gradient,
    convolution_weight_gradient,
)
from edgeddl.kernels.native.elementwise import add, channel_sums, relu_backward, relu_forward
from edgeddl.kernels.native.half import decode_half, encode_half
from edgeddl.kernels.native.library import describe, measure_peak, set_threads, threads
from edgeddl.kernels.native.linear import (
    linear_forward,
    linear_input_gradient,
    linear_weight_gradient,
)
from edgeddl.kernels.native.loss import softmax_cross_entropy
from edgeddl.kernels.native.low_rank import (
    low_rank_left,
    low_rank_orthonormalise,
    low_rank_product,
    low_rank_right,
    low_rank_subtract,
)
from edgeddl.kernels.native.normalization import (
    batch_normalization_backward,
    batch_normalization_forward,
    batch_normalization_prologue,
)
from edgeddl.kernels.native.optimizer import momentum_sgd, momentum_sgd_of_products
from edgeddl.kernels.native.pooling import (
    average_pooling_backward,
    average_pooling_forward,
    global_average_backward,
    global_average_forward,
    max_pooling_backward,
    max_pooling_forward,
)
from edgeddl.kernels.native.ring import ring_sum

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
    "measure_peak",
    "momentum_sgd",
    "momentum_sgd_of_products",
    "relu_backward",
    "relu_forward",
    "ring_sum",
    "set_threads",
    "softmax_cross_entropy",
    "threads",
]
