"""Convolution of the result of a batch normalisation and a ReLU, which is not kept.

The convolution normalises x when it reads it, forward and backward. So half of the activations of a
residual block need not be kept and, with 3 x 3 and 5 x 5 windows, each direction saves a pass over
memory. Other convolutions make a temporary copy.
"""

from __future__ import annotations

from typing import Any

from edgeddl import kernels
from edgeddl.chainer_compat import chainer
from edgeddl.functions.batch_normalization import (
    Normalizing,
    batch_normalization,
    fixed_batch_normalization,
    needs_gradient,
    running_statistics,
    unsupported,
)
from edgeddl.functions.convolution_2d import Convolution2D, convolution_2d
from edgeddl.functions.node import CHAINER_REQUESTED, Array, Pair
from edgeddl.kernels.batch_statistics import BatchStatistics


class NormalizedConvolution2D(Normalizing, Convolution2D):
    """y = windows of relu(gamma * (x - mean) / sqrt(var + eps) + beta) times W.

    Inputs are x, W, gamma and beta.
    """

    relu = True
    gamma_index = 2

    def forward(self, inputs: tuple[Array, ...]) -> tuple[Array]:
        self.retain_inputs((0, 1, 2, 3))
        x, W, gamma, beta = inputs
        self.folded, self.statistics = kernels.batch_normalization_fold(
            x, gamma, beta, self.statistics, self.eps, self.running
        )
        return (kernels.convolution_forward(x, W, None, self.window(W), self.groups, self.folded),)

    def gradients(self, wanted: set[int], gy: Array) -> tuple[Array | None, ...]:
        x, W, gamma, beta = self.retained()
        window, gW = self.window(W), None
        if 1 in wanted:
            gW = self.weight_gradient(x, gy, window, self.folded)
        if wanted == {1}:
            return None, gW, None, None
        g = kernels.convolution_input_gradient(gy, W, x.shape, window, self.groups)
        found = self.normalization_gradients(wanted, x, g, gamma, beta, in_place=True)
        return found.x, gW, found.gamma, found.beta


def normalized_convolution_2d(
    x: Any,
    gamma: Any,
    beta: Any,
    W: Any,
    stride: Pair = 1,
    pad: Pair = 0,
    *,
    dilate: Pair = 1,
    groups: int = 1,
    eps: float = 2e-5,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    decay: float = 0.9,
) -> Any:
    """convolution_2d(batch_normalization_relu(x, ...), W, ...), in one function."""
    geometry: dict[str, Any] = {"stride": stride, "pad": pad, "dilate": dilate, "groups": groups}
    if CHAINER_REQUESTED or unsupported(x, gamma, beta, None, W, running_mean, running_var):
        y = batch_normalization(
            x,
            gamma,
            beta,
            eps=eps,
            running_mean=running_mean,
            running_var=running_var,
            decay=decay,
            relu=True,
        )
        return convolution_2d(y, W, **geometry)
    running = running_statistics(running_mean, running_var, decay)
    node = NormalizedConvolution2D(eps, running=running, **geometry)
    return node.apply((x, W, gamma, beta))[0]


def fixed_normalized_convolution_2d(
    x: Any,
    gamma: Any,
    beta: Any,
    mean: Any,
    var: Any,
    W: Any,
    stride: Pair = 1,
    pad: Pair = 0,
    *,
    dilate: Pair = 1,
    groups: int = 1,
    eps: float = 2e-5,
) -> Any:
    """The same with given statistics, which get no gradient."""
    geometry: dict[str, Any] = {"stride": stride, "pad": pad, "dilate": dilate, "groups": groups}
    reason = unsupported(x, gamma, beta, None, W) or needs_gradient(mean, var)
    if CHAINER_REQUESTED or reason:
        y = fixed_batch_normalization(x, gamma, beta, mean, var, eps, relu=True)
        return convolution_2d(y, W, **geometry)
    statistics = BatchStatistics(chainer.as_array(mean), chainer.as_array(var))
    node = NormalizedConvolution2D(eps, statistics=statistics, **geometry)
    return node.apply((x, W, gamma, beta))[0]
