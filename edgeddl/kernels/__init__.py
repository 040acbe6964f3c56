"""Entry points of the kernels: NumPy in, NumPy out; they check, an implementation computes.

Shapes are Chainer's: activations (N, C, H, W), convolution weights (K, C, kh, kw); all numbers are
float32. Results are channels last in memory, arguments may have any strides (see layout.py).
N images, C input channels, K output channels, H x W pixels, kh x kw window.
"""

from __future__ import annotations

import numpy as np

from edgeddl.errors import KernelError
from edgeddl.kernels import reference as _implementation
from edgeddl.kernels.checks import check_array, check_channels, check_rows
from edgeddl.kernels.layout import Array
from edgeddl.kernels.window import Window

Shape4 = tuple[int, int, int, int]


def convolution_forward(x: Array, W: Array, b: Array | None, window: Window) -> Array:
    """y (N, K, H', W'): W, and b if given, applied to each window of x."""
    check_array("x", x, (None, None, None, None))
    check_array("W", W, (None, x.shape[1], window.kh, window.kw))
    if b is not None:
        check_channels(len(W), b=b)
    window.output_size(*x.shape[2:])
    return _implementation.convolution_forward(x, W, b, window)


def convolution_weight_gradient(
    x: Array, gy: Array, window: Window, out: Array | None = None
) -> Array:
    """gW (K, C, kh, kw), written to `out` if given: fastest if that is in kernel order."""
    check_array("x", x, (None, None, None, None))
    check_array("gy", gy, (len(x), None, *window.output_size(*x.shape[2:])))
    if out is not None:
        check_array("out", out, (gy.shape[1], x.shape[1], window.kh, window.kw))
    return _implementation.convolution_weight_gradient(x, gy, window, out)


def convolution_input_gradient(gy: Array, W: Array, x_shape: Shape4, window: Window) -> Array:
    """gx, of shape x_shape (N, C, H, W)."""
    check_array("W", W, (None, x_shape[1], window.kh, window.kw))
    check_array("gy", gy, (x_shape[0], len(W), *window.output_size(*x_shape[2:])))
    return _implementation.convolution_input_gradient(gy, W, x_shape, window)


def batch_normalization_forward(
    x: Array, gamma: Array, beta: Array, eps: float
) -> tuple[Array, Array, Array]:
    """y, and the mean and biased variance of each channel; x is (N, C, H, W) or (N, C)."""
    check_rows("x", x)
    check_channels(x.shape[1], gamma=gamma, beta=beta)
    if x.size == 0:
        raise KernelError("batch normalisation needs at least one image, the batch is empty")
    return _implementation.batch_normalization_forward(x, gamma, beta, eps)


def batch_normalization_inference(
    x: Array, gamma: Array, beta: Array, mean: Array, var: Array, eps: float
) -> Array:
    """y for a given mean and variance."""
    check_rows("x", x)
    check_channels(x.shape[1], gamma=gamma, beta=beta, mean=mean, var=var)
    return _implementation.batch_normalization_inference(x, gamma, beta, mean, var, eps)


def batch_normalization_parameter_gradients(
    x: Array, gy: Array, mean: Array, var: Array, eps: float
) -> tuple[Array, Array]:
    """ggamma, gbeta."""
    check_rows("x", x)
    check_array("gy", gy, x.shape)
    check_channels(x.shape[1], mean=mean, var=var)
    return _implementation.batch_normalization_parameter_gradients(x, gy, mean, var, eps)


def batch_normalization_input_gradient(
    x: Array,
    gy: Array,
    gamma: Array,
    mean: Array,
    var: Array,
    eps: float,
    ggamma: Array,
    gbeta: Array,
) -> Array:
    """gx, for mean and variance that were computed from x."""
    check_rows("x", x)
    check_array("gy", gy, x.shape)
    check_channels(x.shape[1], gamma=gamma, mean=mean, var=var, ggamma=ggamma, gbeta=gbeta)
    return _implementation.batch_normalization_input_gradient(
        x, gy, gamma, mean, var, eps, ggamma, gbeta
    )


def linear_forward(x: Array, W: Array, b: Array | None) -> Array:
    """y (N, M) = x (N, L) times W (M, L) transposed, plus b (M,) if given."""
    check_array("x", x, (None, None))
    check_array("W", W, (None, x.shape[1]))
    if b is not None:
        check_channels(len(W), b=b)
    return _implementation.linear_forward(x, W, b)


def linear_weight_gradient(x: Array, gy: Array, out: Array | None = None) -> Array:
    """gW (M, L), written to `out` if given."""
    check_array("x", x, (None, None))
    check_array("gy", gy, (len(x), None))
    if out is not None:
        check_array("out", out, (gy.shape[1], x.shape[1]))
    return _implementation.linear_weight_gradient(x, gy, out)


def linear_input_gradient(gy: Array, W: Array) -> Array:
    """gx (N, L)."""
    check_array("W", W, (None, None))
    check_array("gy", gy, (None, len(W)))
    return _implementation.linear_input_gradient(gy, W)


def max_pooling_forward(x: Array, window: Window) -> Array:
    """y (N, C, H', W'): the maximum of each window."""
    check_array("x", x, (None, None, None, None))
    window.output_size(*x.shape[2:])
    return _implementation.max_pooling_forward(x, window)


def max_pooling_backward(x: Array, y: Array, gy: Array, window: Window) -> Array:
    """gx, from what went into and came out of max_pooling_forward."""
    check_array("x", x, (None, None, None, None))
    for name, array in (("y", y), ("gy", gy)):
        check_array(name, array, (*x.shape[:2], *window.output_size(*x.shape[2:])))
    return _implementation.max_pooling_backward(x, y, gy, window)


def global_average_forward(x: Array) -> Array:
    """y (N, C): the mean over all pixels."""
    check_array("x", x, (None, None, None, None))
    return _implementation.global_average_forward(x)


def global_average_backward(gy: Array, x_shape: Shape4) -> Array:
    """gx, of shape x_shape (N, C, H, W)."""
    check_array("gy", gy, x_shape[:2])
    return _implementation.global_average_backward(gy, x_shape)


def relu_forward(x: Array) -> Array:
    """max(x, 0); x is (N, C, H, W) or (N, C)."""
    check_rows("x", x)
    return _implementation.relu_forward(x)


def relu_backward(y: Array, gy: Array) -> Array:
    """gx, from what came out of relu_forward."""
    check_rows("y", y)
    check_array("gy", gy, y.shape)
    return _implementation.relu_backward(y, gy)


def channel_sums(gy: Array) -> Array:
    """The sum over all but the channels (C,): the gradient of a bias."""
    check_rows("gy", gy)
    return _implementation.channel_sums(gy)


def store(gradient: Array, out: Array | None) -> Array:
    """The gradient itself, or `out` with the gradient copied to it: for small gradients."""
    if out is None:
        return gradient
    check_array("out", out, gradient.shape)
    np.copyto(out, gradient)
    return out


def encode_half(x: Array, factor: float, out: Array) -> None:
    """out (uint16) = x in half precision, as multiples of factor * 2**-112.

    x / (factor * 2**-112) must lie within half precision's range, 65504.
    """
    _check_half(x, out)
    _implementation.encode_half(x, factor, out)


def decode_half(x: Array, factor: float, out: Array) -> None:
    """out (float32) = what encode_half was given; infinity and NaN only come from the factor."""
    _check_half(out, x)
    _implementation.decode_half(x, factor, out)


def _check_half(numbers: Array, halves: Array) -> None:
    check_array("numbers", numbers, (None,))
    if halves.dtype != np.uint16 or halves.shape != numbers.shape:
        raise KernelError(
            f"halves must be uint16 of shape {numbers.shape}, not {halves.dtype} of {halves.shape}"
        )
    if not (numbers.flags.c_contiguous and halves.flags.c_contiguous):
        raise KernelError("numbers and halves must be contiguous")
