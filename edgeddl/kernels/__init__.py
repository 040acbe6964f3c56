"""Entry points of the kernels: NumPy in, NumPy out; they check, an implementation computes.

Shapes are Chainer's: activations (N, C, H, W), convolution weights (K, C, kh, kw); all numbers are
float32. Results are channels last in memory, arguments may have any strides (see layout.py).
N images, C input channels, K output channels, H x W pixels, kh x kw window.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from edgeddl.config import kernel_choice
from edgeddl.errors import KernelError
from edgeddl.kernels.checks import (
    check_array,
    check_channels,
    check_contiguous,
    check_flat,
    check_groups,
    check_image_shape,
    check_images,
    check_kind,
    check_labels,
    check_rows,
    check_shape,
    check_writable,
    is_plain,
)
from edgeddl.kernels.halves import HALF_BLOCK, blocks_for
from edgeddl.kernels.layout import Array
from edgeddl.kernels.matrices import Matrices, Products
from edgeddl.kernels.moments import Moments, NormalizationGradients, Running
from edgeddl.kernels.prologue import Prologue
from edgeddl.kernels.segments import check_segments
from edgeddl.kernels.selection import select
from edgeddl.kernels.streams import Neighbours
from edgeddl.kernels.window import Window

Shape4 = tuple[int, int, int, int]
# A column is made of earlier ones, and of rounding, if no larger part of it is left without them.
DEPENDENT = float(np.finfo(np.float32).eps)

_selection = select(kernel_choice())
_implementation = _selection.implementation


def chosen() -> str:
    """Whose kernels compute in this process, e.g. "native avx2" or "reference"."""
    return _selection.name


def describe() -> dict[str, str]:
    """What there is to say about them: their build, why they were chosen, ..."""
    return dict(_selection.facts)


def convolution_forward(
    x: Array,
    W: Array,
    b: Array | None,
    window: Window,
    groups: int = 1,
    before: Prologue | None = None,
) -> Array:
    """y (N, K, H', W'): W, and b if given, applied to each window of x.

    With a prologue, x is normalised and rectified as it is read.

    With groups, W is (K, C/groups, kh, kw): the channels are cut into so many equal parts, in
    order, and each part of the output sees only its part of the input.
    """
    check_images("x", x)
    _check_weights(W, x.shape, window, groups)
    if b is not None:
        check_channels(len(W), b=b)
    if before is not None:
        check_channels(x.shape[1], scale=before.scale, shift=before.shift)
    return _implementation.convolution_forward(x, W, b, window, groups, before)


def _check_weights(W: Array, x_shape: tuple[int, ...], window: Window, groups: int) -> Shape4:
    """Whether the weights fit the image and the window; returns the shape of y."""
    if not (is_plain(W) and W.ndim == 4):
        check_array("W", W, (None, None, window.kh, window.kw))
    return _convolved_shape(x_shape, W.shape, window, groups)


@lru_cache(maxsize=1024, typed=True)  # the layers of a network, again and again
def _convolved_shape(
    x_shape: Shape4, W_shape: tuple[int, ...], window: Window, groups: int
) -> Shape4:
    (n, c, h, w), k = x_shape, W_shape[0]
    check_shape("W", W_shape, (None, None, window.kh, window.kw))
    check_groups(groups, c, k)
    check_shape("W", W_shape, (None, c // groups, window.kh, window.kw))
    return n, k, *window.output_size(h, w)


def convolution_weight_gradient(
    x: Array,
    gy: Array,
    window: Window,
    groups: int = 1,
    out: Array | None = None,
    before: Prologue | None = None,
) -> Array:
    """gW (K, C/groups, kh, kw), written to `out` if given: fastest if that is in kernel order."""
    check_images("x", x)
    if not is_plain(gy):
        check_array("gy", gy, (len(x), None, *window.output_size(*x.shape[2:])))
    gW_shape = _weight_shape(x.shape, gy.shape, window, groups)
    if out is not None:
        check_array("out", out, gW_shape)
        check_writable("out", out, x=x, gy=gy)
    if before is not None:
        check_channels(x.shape[1], scale=before.scale, shift=before.shift)
    return _implementation.convolution_weight_gradient(x, gy, window, groups, out, before)


@lru_cache(maxsize=1024, typed=True)
def _weight_shape(
    x_shape: Shape4, gy_shape: tuple[int, ...], window: Window, groups: int
) -> Shape4:
    n, c, h, w = x_shape
    check_shape("gy", gy_shape, (n, None, *window.output_size(h, w)))
    check_groups(groups, c, gy_shape[1])
    return gy_shape[1], c // groups, window.kh, window.kw


def convolution_input_gradient(
    gy: Array,
    W: Array,
    x_shape: Shape4,
    window: Window,
    groups: int = 1,
    plus: Array | None = None,
) -> Array:
    """gx, of shape x_shape (N, C, H, W); plus another gradient of x, if given."""
    check_image_shape("x_shape", x_shape)
    check_array("gy", gy, _check_weights(W, tuple(x_shape), window, groups))
    if plus is not None:
        check_array("plus", plus, x_shape)
    return _implementation.convolution_input_gradient(gy, W, x_shape, window, groups, plus)


def batch_normalization_forward(
    x: Array,
    gamma: Array,
    beta: Array,
    moments: Moments | None,
    eps: float,
    relu: bool = False,
    residual: Array | None = None,
    in_place: bool = False,
    running: Running | None = None,
) -> tuple[Array, Moments]:
    """y, and the moments it was found with: the given ones, else those of x.

    x is (N, C, H, W) or (N, C). Running statistics, if given, are updated in place by those of x.

    With `relu`, y is the ReLU of what is normalised; with a residual, of its sum with that. With
    `in_place`, y may be written over the residual.
    """
    inputs = {"x": x, "gamma": gamma, "beta": beta}
    check_rows("x", x)
    if residual is not None:
        check_array("residual", residual, x.shape)
        if in_place:
            check_writable("residual", residual, **inputs)
        inputs["residual"] = residual
    _check_statistics(moments, running, inputs)
    return _implementation.batch_normalization_forward(
        x, gamma, beta, moments, eps, relu, residual, in_place, running
    )


def batch_normalization_prologue(
    x: Array,
    gamma: Array,
    beta: Array,
    moments: Moments | None,
    eps: float,
    running: Running | None = None,
) -> tuple[Prologue, Moments]:
    """Likewise, for a convolution to apply it, and a ReLU, as it reads x."""
    check_rows("x", x)
    _check_statistics(moments, running, {"x": x, "gamma": gamma, "beta": beta})
    return _implementation.batch_normalization_prologue(x, gamma, beta, moments, eps, running)


def _check_statistics(
    moments: Moments | None, running: Running | None, inputs: dict[str, Array]
) -> None:
    """With the inputs that are read with them; of these x has been looked at."""
    x = inputs["x"]
    c = x.shape[1]
    check_channels(c, gamma=inputs["gamma"], beta=inputs["beta"])
    if moments is not None:
        check_channels(c, mean=moments.mean, var=moments.var)
        if running is not None:
            raise KernelError("running statistics are not updated by moments that are given")
    elif x.size == 0:
        raise KernelError("batch normalisation needs at least one image, the batch is empty")
    if running is not None:
        check_channels(c, running_mean=running.mean, running_var=running.var)
        check_writable("running_mean", running.mean, running_var=running.var, **inputs)
        check_writable("running_var", running.var, **inputs)


def batch_normalization_backward(
    x: Array,
    gy: Array,
    gamma: Array,
    beta: Array,
    moments: Moments,
    eps: float,
    relu: bool = False,
    *,
    y: Array | None = None,
    fixed: bool = False,
    in_place: bool = False,
    y_in_place: bool = False,
    out_gamma: Array | None = None,
    out_beta: Array | None = None,
) -> NormalizationGradients:
    """The gradients of x, gamma and beta, and of the residual, if there was one.

    With `relu`, where it was zero is found from x: y need not be kept. After a residual it must be
    given. `fixed` says that the moments were not found from x. With `in_place`, the gradient
    of x may be written over gy, with `y_in_place` that of the residual over y. Gradients of gamma
    and beta are written to `out_gamma` and `out_beta`, if given.
    """
    check_rows("x", x)
    check_array("gy", gy, x.shape)
    check_channels(x.shape[1], gamma=gamma, beta=beta, mean=moments.mean, var=moments.var)
    if y is not None:
        check_array("y", y, x.shape)
    if in_place:
        check_writable("gy", gy, x=x)
    if y is not None and y_in_place:
        check_writable("y", y, x=x, gy=gy)
    _check_vector("out_gamma", out_gamma, x.shape[1], x=x, gy=gy)
    _check_vector("out_beta", out_beta, x.shape[1], x=x, gy=gy)
    return _implementation.batch_normalization_backward(
        *(x, gy, gamma, beta, moments, eps, relu, y, fixed, in_place, y_in_place),
        *(out_gamma, out_beta),
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
        check_writable("out", out, x=x, gy=gy)
    return _implementation.linear_weight_gradient(x, gy, out)


def linear_input_gradient(gy: Array, W: Array) -> Array:
    """gx (N, L)."""
    check_array("W", W, (None, None))
    check_array("gy", gy, (None, len(W)))
    return _implementation.linear_input_gradient(gy, W)


def max_pooling_forward(x: Array, window: Window) -> Array:
    """y (N, C, H', W'): the maximum of each window."""
    check_images("x", x)
    _pooled_size(window, x.shape)
    return _implementation.max_pooling_forward(x, window)


def max_pooling_backward(x: Array, y: Array, gy: Array, window: Window) -> Array:
    """gx, from what went into and came out of max_pooling_forward."""
    check_images("x", x)
    for name, array in (("y", y), ("gy", gy)):
        check_array(name, array, (*x.shape[:2], *_pooled_size(window, x.shape)))
    return _implementation.max_pooling_backward(x, y, gy, window)


def average_pooling_forward(x: Array, window: Window) -> Array:
    """y (N, C, H', W'): the sum of each window over kh*kw; what is outside counts as 0."""
    check_images("x", x)
    _pooled_size(window, x.shape)
    return _implementation.average_pooling_forward(x, window)


def average_pooling_backward(gy: Array, x_shape: Shape4, window: Window) -> Array:
    """gx, of shape x_shape (N, C, H, W)."""
    check_image_shape("x_shape", x_shape)
    check_array("gy", gy, (*x_shape[:2], *_pooled_size(window, x_shape)))
    return _implementation.average_pooling_backward(gy, x_shape, window)


def _pooled_size(window: Window, x_shape: tuple[int, ...]) -> tuple[int, int]:
    if (window.dy, window.dx) != (1, 1):
        raise KernelError(f"pooling takes whole windows, without dilation: {window}")
    return window.output_size(*x_shape[2:])


def global_average_forward(x: Array) -> Array:
    """y (N, C): the mean over all pixels."""
    check_images("x", x)
    return _implementation.global_average_forward(x)


def global_average_backward(gy: Array, x_shape: Shape4) -> Array:
    """gx, of shape x_shape (N, C, H, W)."""
    check_image_shape("x_shape", x_shape)
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


def add(x: Array, y: Array) -> Array:
    """x + y; both are (N, C, H, W) or (N, C)."""
    check_rows("x", x)
    check_array("y", y, x.shape)
    return _implementation.add(x, y)


def channel_sums(gy: Array, out: Array | None = None) -> Array:
    """The sum over all but the channels (C,), written to `out` if given: the gradient of a bias."""
    check_rows("gy", gy)
    _check_vector("out", out, gy.shape[1], gy=gy)
    return _implementation.channel_sums(gy, out)


def _check_vector(name: str, out: Array | None, c: int, **inputs: Array) -> None:
    """A place, if given, for one number a channel."""
    if out is not None:
        check_contiguous((c,), **{name: out})
        check_writable(name, out, **inputs)


def softmax_cross_entropy(
    x: Array, t: Array, smoothing: float = 0.0, ignore_label: int = -1
) -> tuple[float, Array]:
    """The mean cross-entropy of the rows of x (N, M), and its gradient (N, M).

    The target is 1 - smoothing on the label t (int32), plus smoothing / M on each of the M classes.
    Rows whose label is `ignore_label` do not count.
    """
    check_array("x", x, (None, None))
    check_rows("x", x)
    check_labels("t", t, len(x), x.shape[1], ignore_label)
    return _implementation.softmax_cross_entropy(x, t, smoothing, ignore_label)


def momentum_sgd(
    parameters: Array,
    gradients: Array,
    velocity: Array,
    segments: Array,
    learning_rate: float,
    momentum: float,
    nesterov: bool,
) -> None:
    """One step in place, over flat arrays: v = momentum * v + d;  p -= learning_rate * v.

    d = gradient + weight_decay * p; with Nesterov's momentum, p -= learning_rate * (d + momentum
    * v). Each segment (an array of SEGMENT) has its weight decay; the rest stays as it is.
    """
    check_flat(np.size(parameters), parameters=parameters, gradients=gradients, velocity=velocity)
    check_writable("parameters", parameters, gradients=gradients, velocity=velocity)
    check_writable("velocity", velocity, gradients=gradients)
    check_segments(segments, parameters.size)
    _implementation.momentum_sgd(
        parameters, gradients, velocity, segments, learning_rate, momentum, nesterov
    )


def momentum_sgd_of_products(
    parameters: Array,
    products: Products,
    velocity: Array,
    weight_decays: Array,
    learning_rate: float,
    momentum: float,
    nesterov: bool,
) -> None:
    """The same for matrices whose gradients are products, which nobody needs to write to memory.

    Each matrix has its weight decay (float64).
    """
    matrices = products.matrices
    check_flat(np.size(parameters), parameters=parameters, velocity=velocity)
    check_kind("weight_decays", weight_decays, (np.float64,))
    check_shape("weight_decays", weight_decays.shape, matrices.table.shape)
    if not 0 <= products.start <= parameters.size - matrices.gradients:
        raise KernelError(
            f"products for {matrices.gradients} gradients from {products.start} on do not fit into"
            f" {parameters.size} parameters"
        )
    _check_thin(matrices, products.lefts, products.rights)
    thin = {"lefts": products.lefts, "rights": products.rights}
    check_writable("parameters", parameters, velocity=velocity, **thin)
    check_writable("velocity", velocity, **thin)
    _implementation.momentum_sgd_of_products(
        parameters, products, velocity, weight_decays, learning_rate, momentum, nesterov
    )


def encode_half(numbers: Array, blocks: Array) -> None:
    """The blocks (HALF_BLOCK) become these numbers, rounded to 11 bits; see halves.py."""
    _check_half(numbers, blocks)
    check_writable("blocks", blocks, numbers=numbers)
    _implementation.encode_half(numbers, blocks)


def decode_half(blocks: Array, numbers: Array) -> None:
    """The numbers become those of the blocks."""
    _check_half(numbers, blocks)
    check_writable("numbers", numbers, blocks=blocks)
    _implementation.decode_half(blocks, numbers)


def _check_half(numbers: Array, blocks: Array) -> None:
    check_contiguous((None,), numbers=numbers)
    check_kind("blocks", blocks, (HALF_BLOCK,))
    check_shape("blocks", blocks.shape, (blocks_for(numbers.size),))


def ring_sum(array: Array, place: Neighbours) -> None:
    """Replace an array of float32, float64 or HALF_BLOCK by its sum over all ranks of a ring.

    Everybody gets the same bits. Raises StreamLost; what the array has then is of no use.
    """
    check_kind("array", array, (np.float32, np.float64, HALF_BLOCK))
    check_writable("array", array)
    if place.size > 1 and array.size:
        _implementation.ring_sum(array.reshape(-1), place)


def low_rank_left(
    matrices: Matrices,
    errors: Array,
    gradients: Array,
    factors: Array,
    lefts: Array,
    told: Array | None,
) -> None:
    """error += gradient, then left = error times factor transposed, for each of the matrices.

    With `told` (as `factors`, one right each), an error is first freed of the product of left, as
    it was before, and told. One walk over memory; on the caller's thread, as all of these: it is
    the one that communicates. All arrays are flat (see matrices.py).
    """
    check_flat(matrices.gradients, gradients=gradients)
    check_flat(matrices.rights, factors=factors)
    inputs = {"gradients": gradients, "factors": factors}
    if told is not None:
        check_flat(matrices.rights, told=told)
        inputs["told"] = told
    check_flat(matrices.errors, errors=errors)
    check_flat(matrices.lefts, lefts=lefts)
    check_writable("errors", errors, lefts=lefts, **inputs)
    check_writable("lefts", lefts, **inputs)
    _implementation.low_rank_left(matrices, errors, gradients, factors, lefts, told)


def low_rank_orthonormalise(matrices: Matrices, lefts: Array) -> None:
    """Makes the columns of each left orthonormal; one that depends on those before becomes zero.

    From the same bits every rank with the same build makes the same bits.
    """
    check_flat(matrices.lefts, lefts=lefts)
    check_writable("lefts", lefts)
    _implementation.low_rank_orthonormalise(matrices, lefts, DEPENDENT)


def low_rank_right(matrices: Matrices, errors: Array, lefts: Array, rights: Array) -> None:
    """right = left transposed, times error."""
    check_flat(matrices.errors, errors=errors)
    _check_thin(matrices, lefts, rights)
    check_writable("rights", rights, errors=errors, lefts=lefts)
    _implementation.low_rank_right(matrices, errors, lefts, rights)


def low_rank_product(matrices: Matrices, lefts: Array, rights: Array, gradients: Array) -> None:
    """gradient = left times right; what lies between matrices stays as it is."""
    check_flat(matrices.gradients, gradients=gradients)
    _check_thin(matrices, lefts, rights)
    check_writable("gradients", gradients, lefts=lefts, rights=rights)
    _implementation.low_rank_product(matrices, lefts, rights, gradients)


def low_rank_subtract(matrices: Matrices, lefts: Array, rights: Array, errors: Array) -> None:
    """error -= left times right: to the bit what low_rank_left does with what was told."""
    check_flat(matrices.errors, errors=errors)
    _check_thin(matrices, lefts, rights)
    check_writable("errors", errors, lefts=lefts, rights=rights)
    _implementation.low_rank_subtract(matrices, lefts, rights, errors)


def _check_thin(matrices: Matrices, lefts: Array, rights: Array) -> None:
    check_flat(matrices.lefts, lefts=lefts)
    check_flat(matrices.rights, rights=rights)
