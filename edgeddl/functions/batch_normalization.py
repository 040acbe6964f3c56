"""Batch normalisation, as chainer.functions.batch_normalization and its fixed variant."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from edgeddl import kernels
from edgeddl.chainer_compat import F, chainer
from edgeddl.functions.node import Array, Node, foreign, warn_stock


class BatchNormalization(Node):
    """y = gamma * (x - mean) / sqrt(var + eps) + beta, with mean and var of this batch."""

    mean: Array
    var: Array

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, inputs: tuple[Array, ...]) -> tuple[Array]:
        self.retain_inputs((0, 1))
        x, gamma, beta = inputs
        y, self.mean, self.var = kernels.batch_normalization_forward(x, gamma, beta, self.eps)
        return (y,)

    def gradients(self, wanted: set[int], gy: Array) -> tuple[Array | None, ...]:
        x, gamma = self.retained()
        sums = _parameter_gradients(self, x, gy)
        ggamma, gbeta = _deliver(self, wanted, sums)
        gx = None
        if 0 in wanted:
            gx = kernels.batch_normalization_input_gradient(
                x, gy, gamma, self.mean, self.var, self.eps, *sums
            )
        return gx, ggamma, gbeta


class FixedBatchNormalization(Node):
    """y = gamma * (x - mean) / sqrt(var + eps) + beta, with mean and var from elsewhere."""

    def __init__(self, mean: Array, var: Array, eps: float) -> None:
        super().__init__()
        self.mean, self.var, self.eps = mean, var, eps

    def forward(self, inputs: tuple[Array, ...]) -> tuple[Array]:
        self.retain_inputs((0, 1))
        return (self._normalize(*inputs),)

    def _normalize(self, x: Array, gamma: Array, beta: Array) -> Array:
        return kernels.batch_normalization_inference(x, gamma, beta, self.mean, self.var, self.eps)

    def gradients(self, wanted: set[int], gy: Array) -> tuple[Array | None, ...]:
        x, gamma = self.retained()
        ggamma, gbeta = _deliver(self, wanted, _parameter_gradients(self, x, gy))
        gx = None
        if 0 in wanted:  # gamma / std * gy is the normalisation of gy around zero
            zero = np.zeros_like(gamma)
            gx = kernels.batch_normalization_inference(gy, gamma, zero, zero, self.var, self.eps)
        return gx, ggamma, gbeta


def _parameter_gradients(
    node: BatchNormalization | FixedBatchNormalization, x: Array, gy: Array
) -> tuple[Array, Array]:
    return kernels.batch_normalization_parameter_gradients(x, gy, node.mean, node.var, node.eps)


def _deliver(
    node: Node, wanted: set[int], gradients: tuple[Array, Array]
) -> tuple[Array | None, Array | None]:
    """ggamma and gbeta, copied to where the sink wants them: C numbers each."""
    ggamma, gbeta = (
        node.parameter_gradient(index, lambda out, g=gradient: kernels.store(g, out))  # type: ignore
        if index in wanted
        else None
        for index, gradient in enumerate(gradients, start=1)
    )
    return ggamma, gbeta


def batch_normalization(
    x: Any,
    gamma: Any,
    beta: Any,
    *,
    eps: float = 2e-5,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    decay: float = 0.9,
    axis: int | tuple[int, ...] | None = None,
) -> Any:
    """Normalisation with this batch's statistics; running ones are updated in place if given."""
    if reason := _not_covered(x, gamma, beta, axis):
        warn_stock("batch_normalization", reason)
        return F.batch_normalization(
            x,
            gamma,
            beta,
            eps=eps,
            running_mean=running_mean,
            running_var=running_var,
            decay=decay,
            axis=axis,
        )
    if x.size == x.shape[1]:
        warnings.warn(
            "with a single number a channel, normalisation gives always beta", stacklevel=2
        )
    node = BatchNormalization(eps)
    (y,) = node.apply((x, gamma, beta))
    if running_mean is not None and running_var is not None:
        _update_running(running_mean, running_var, node, decay, x.size // x.shape[1])
    return y


def _update_running(
    mean: Array, var: Array, node: BatchNormalization, decay: float, count: int
) -> None:
    """Moving averages as Chainer keeps them: of the mean, and of the unbiased variance."""
    mean *= decay
    mean += (1 - decay) * node.mean
    var *= decay
    var += (1 - decay) * (count / max(count - 1.0, 1.0)) * node.var


def fixed_batch_normalization(
    x: Any,
    gamma: Any,
    beta: Any,
    mean: Any,
    var: Any,
    eps: float = 2e-5,
    axis: int | tuple[int, ...] | None = None,
) -> Any:
    """Normalisation with given statistics, which get no gradient."""
    if reason := _not_covered(x, gamma, beta, axis) or _needs_gradient(mean, var):
        warn_stock("fixed_batch_normalization", reason)
        return F.fixed_batch_normalization(x, gamma, beta, mean, var, eps=eps, axis=axis)
    node = FixedBatchNormalization(chainer.as_array(mean), chainer.as_array(var), eps)
    return node.apply((x, gamma, beta))[0]


def _needs_gradient(*statistics: Any) -> str | None:
    variables = [s for s in statistics if isinstance(s, chainer.Variable) and s.requires_grad]
    return "gradients of mean and variance" if variables else foreign(*statistics)


def _not_covered(x: Any, gamma: Any, beta: Any, axis: int | tuple[int, ...] | None) -> str | None:
    axes = (axis,) if isinstance(axis, int) else axis
    if x.ndim not in (2, 4) or gamma.ndim != 1:
        return f"{x.ndim}-dimensional input and {gamma.ndim}-dimensional gamma"
    if axes is not None and tuple(axes) != (0, 2, 3)[: x.ndim - 1]:
        return f"axis={axis}"
    return foreign(x, gamma, beta)
