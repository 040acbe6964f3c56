"""Convolution of what a batch normalisation and a ReLU give, without that ever being in memory.

It is found from x when the convolution reads it, forward and backward: a pass over memory less in
each direction, and half of the activations of a residual block need not be kept.
"""

from __future__ import annotations

from typing import Any

from edgeddl import kernels
from edgeddl.chainer_compat import chainer
from edgeddl.functions.batch_normalization import (
    batch_normalization,
    fixed_batch_normalization,
    needs_gradient,
    not_covered,
    update_running,
)
from edgeddl.functions.convolution_2d import Convolution2D, convolution_2d
from edgeddl.functions.node import CHAINER_ASKED, Array, Pair, foreign, pair
from edgeddl.kernels.prologue import scale_and_shift


class NormalizedConvolution2D(Convolution2D):
    """y = windows of relu(gamma * (x - mean) / sqrt(var + eps) + beta) times W.

    Inputs are x, W, gamma and beta. Mean and var are given, or those of this batch.
    """

    def __init__(
        self, eps: float, *geometry: Any, statistics: tuple[Array, Array] | None = None
    ) -> None:
        super().__init__(*geometry)
        self.eps, self.statistics, self.fixed = eps, statistics, statistics is not None

    def forward(self, inputs: tuple[Array, ...]) -> tuple[Array]:
        self.retain_inputs((0, 1, 2, 3))
        x, W, gamma, beta = inputs
        if self.statistics is None:
            self.statistics = kernels.batch_normalization_statistics(x)
        before = scale_and_shift(gamma, beta, *self.statistics, self.eps)
        return (kernels.convolution_forward(x, W, None, self.window(W), self.groups, before),)

    def gradients(self, wanted: set[int], gy: Array) -> tuple[Array | None, ...]:
        x, W, gamma, beta = self.retained()
        assert self.statistics is not None
        window, groups = self.window(W), self.groups
        normalization = (gamma, beta, *self.statistics, self.eps)
        gx, gW = None, None
        if 1 in wanted:
            before = scale_and_shift(*normalization)
            gW = self.parameter_gradient(
                1,
                lambda out: kernels.convolution_weight_gradient(x, gy, window, groups, out, before),
            )
        if wanted == {1}:
            return None, gW, None, None
        g = kernels.convolution_input_gradient(gy, W, x.shape, window, groups)
        sums = kernels.batch_normalization_parameter_gradients(x, g, *normalization, relu=True)
        parameters = self.small_gradients(wanted, {2: sums[0], 3: sums[1]})
        if 0 in wanted:
            if self.fixed:  # x has no part in the statistics
                sums = (0 * gamma, 0 * gamma)
            gx = kernels.batch_normalization_input_gradient(x, g, *normalization, *sums, relu=True)
        return (gx, gW, *parameters)


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
    """convolution_2d(batch_normalization_relu(x, ...), W, ...), in one."""
    if CHAINER_ASKED or not_covered(x, gamma, beta, None, None) or foreign(W):
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
        return convolution_2d(y, W, None, stride, pad, dilate=dilate, groups=groups)
    node = NormalizedConvolution2D(eps, pair(stride), pair(pad), pair(dilate), groups)
    (y,) = node.apply((x, W, gamma, beta))
    assert node.statistics is not None
    update_running(running_mean, running_var, node.statistics, decay, x.size // x.shape[1])
    return y


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
    reason = not_covered(x, gamma, beta, None, None) or needs_gradient(mean, var) or foreign(W)
    if CHAINER_ASKED or reason:
        y = fixed_batch_normalization(x, gamma, beta, mean, var, eps, relu=True)
        return convolution_2d(y, W, None, stride, pad, dilate=dilate, groups=groups)
    statistics = chainer.as_array(mean), chainer.as_array(var)
    geometry = pair(stride), pair(pad), pair(dilate), groups
    node = NormalizedConvolution2D(eps, *geometry, statistics=statistics)
    return node.apply((x, W, gamma, beta))[0]
