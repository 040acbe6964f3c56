"""Convolution of what a batch normalisation and a ReLU give, without that being kept.

It is found from x when the convolution reads it, forward and backward: half of the activations of a
residual block need not be kept and, with 3 x 3 and 5 x 5 windows, there is a pass over memory less
in each direction. Other convolutions make a copy for as long as they compute.
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
    running_statistics,
)
from edgeddl.functions.convolution_2d import Convolution2D, convolution_2d
from edgeddl.functions.node import CHAINER_ASKED, Array, Pair, pair
from edgeddl.kernels.moments import Moments, Running


class NormalizedConvolution2D(Convolution2D):
    """y = windows of relu(gamma * (x - mean) / sqrt(var + eps) + beta) times W.

    Inputs are x, W, gamma and beta. Mean and var are given, or those of this batch.
    """

    def __init__(
        self,
        eps: float,
        *geometry: Any,
        moments: Moments | None = None,
        running: Running | None = None,
    ) -> None:
        super().__init__(*geometry)
        self.eps, self.moments, self.running = eps, moments, running
        self.fixed = moments is not None

    def forward(self, inputs: tuple[Array, ...]) -> tuple[Array]:
        self.retain_inputs((0, 1, 2, 3))
        x, W, gamma, beta = inputs
        self.before, self.moments = kernels.batch_normalization_prologue(
            x, gamma, beta, self.moments, self.eps, self.running
        )
        return (kernels.convolution_forward(x, W, None, self.window(W), self.groups, self.before),)

    def gradients(self, wanted: set[int], gy: Array) -> tuple[Array | None, ...]:
        x, W, gamma, beta = self.retained()
        assert self.moments is not None
        window, groups, gW = self.window(W), self.groups, None
        if 1 in wanted:
            out = self.view_for(1)
            gW = kernels.convolution_weight_gradient(x, gy, window, groups, out, self.before)
            self.ready(1, out)
        if wanted == {1}:
            return None, gW, None, None
        out_gamma = self.view_for(2) if 2 in wanted else None
        out_beta = self.view_for(3) if 3 in wanted else None
        g = kernels.convolution_input_gradient(gy, W, x.shape, window, groups)
        found = kernels.batch_normalization_backward(
            *(x, g, gamma, beta, self.moments, self.eps, True),
            fixed=self.fixed,
            in_place=True,
            out_gamma=out_gamma,
            out_beta=out_beta,
        )
        self.ready(2, out_gamma)
        self.ready(3, out_beta)
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
    """convolution_2d(batch_normalization_relu(x, ...), W, ...), in one."""
    if CHAINER_ASKED or not_covered(x, gamma, beta, None, W, running_mean, running_var):
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
    running = running_statistics(running_mean, running_var, decay)
    geometry = pair(stride), pair(pad), pair(dilate), groups
    node = NormalizedConvolution2D(eps, *geometry, running=running)
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
    reason = not_covered(x, gamma, beta, None, W) or needs_gradient(mean, var)
    if CHAINER_ASKED or reason:
        y = fixed_batch_normalization(x, gamma, beta, mean, var, eps, relu=True)
        return convolution_2d(y, W, None, stride, pad, dilate=dilate, groups=groups)
    moments = Moments(chainer.as_array(mean), chainer.as_array(var))
    geometry = pair(stride), pair(pad), pair(dilate), groups
    node = NormalizedConvolution2D(eps, *geometry, moments=moments)
    return node.apply((x, W, gamma, beta))[0]
