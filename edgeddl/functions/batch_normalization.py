"""Batch normalisation, as chainer.functions.batch_normalization and its fixed variant.

And the two with what mostly follows, in one pass over memory: a ReLU, or the addition of a residual
and a ReLU.
"""

from __future__ import annotations

import warnings
from typing import Any

from edgeddl import kernels
from edgeddl.chainer_compat import chainer
from edgeddl.functions.node import Array, Node, array_of, foreign, left_to_chainer, stock
from edgeddl.kernels.moments import Moments, Running

Axis = int | tuple[int, ...] | None

# How many outputs, each the residual of the next, are computed again for the last of them. One of
# so many is kept in a deeper network: else the work would grow with the square of its depth.
LONGEST_CHAIN = 3


class BatchNormalization(Node):
    """y = gamma * (x - mean) / sqrt(var + eps) + beta.

    Mean and var are given, or those of this batch. With `relu`, y is the ReLU of this; with a
    fourth input, the residual, that of the sum of both.

    y is not kept here, and if it is large, neither by the functions that it goes to: backward
    computes it again from x and the residual, a pass over memory. Of a network's large activations
    only the results of its convolutions are kept then. Backward of a ReLU without a residual needs
    no y: where it was zero is found from x.
    """

    _chain = 0  # of outputs to be computed again, of which this is the last
    _recomputed = False  # the output's array is what was computed again
    _done = False  # backward is through

    def __init__(
        self,
        eps: float,
        *,
        relu: bool = False,
        moments: Moments | None = None,
        running: Running | None = None,
    ) -> None:
        super().__init__()
        self.eps, self.relu, self.moments, self.running = eps, relu, moments, running
        self.fixed = moments is not None

    def forward(self, inputs: tuple[Array, ...]) -> tuple[Array]:
        self.retain_inputs(tuple(range(len(inputs))))
        self.needs_output = len(inputs) == 4
        y, self.moments = self._normalize(*inputs, running=self.running)
        return (y,)

    def _normalize(
        self,
        x: Array,
        gamma: Array,
        beta: Array,
        residual: Array | None = None,
        *,
        in_place: bool = False,
        running: Running | None = None,
    ) -> tuple[Array, Moments]:
        return kernels.batch_normalization_forward(
            x, gamma, beta, self.moments, self.eps, self.relu, residual, in_place, running
        )

    def leaves(self, index: int, arrays: tuple[Array, ...]) -> bool:
        return index == 3 or super().leaves(index, arrays)

    def keep(self, arrays: tuple[Array, ...]) -> None:
        super().keep(arrays)
        self._chain = 1
        for source in self.sources.values():
            self._chain = max(self._chain, 1 + source._chain)
        self.recomputable = self._chain <= LONGEST_CHAIN

    def output_again(self) -> Array:
        """The output as it still is, or computed again, once for all functions that it went to."""
        output = self.outputs[0]()
        variable = output.get_variable_or_none()
        if variable is not None:
            return variable.array
        if output.data is None:
            output.data = self._recompute()
            self._recomputed = True
        return output.data

    def _recompute(self) -> Array:
        """y; of a residual that has to be computed for it nothing is left: it is needed later."""
        x, gamma, beta = (self.retained_input(index) for index in (0, 1, 2))
        if len(self.inputs) == 3:
            return self._normalize(x, gamma, beta)[0]
        kept = self.inputs[3].data
        residual = self.sources[3]._recompute() if kept is None else kept
        return self._normalize(x, gamma, beta, residual, in_place=kept is None)[0]

    def _drop_output(self) -> None:
        """All functions that it went to are done: nobody needs again what was computed again."""
        if self._recomputed:
            self.outputs[0]()._data = None  # by the property, shape and dtype would go too
        self._recomputed, self._done = False, True

    def unchain(self) -> None:
        """Leave the graph, but not without the output, if a function that is to come needs it."""
        output = self.outputs[0]()
        if output is not None and not self._done:
            output.data = self.output_again()
        super().unchain()

    def gradients(self, wanted: set[int], gy: Array) -> tuple[Array | None, ...]:
        x, gamma, beta = self.retained_input(0), self.retained_input(1), self.retained_input(2)
        assert self.moments is not None
        y = self.output_again() if self.needs_output else None
        out_gamma = self.view_for(1) if 1 in wanted else None
        out_beta = self.view_for(2) if 2 in wanted else None
        found = kernels.batch_normalization_backward(
            *(x, gy, gamma, beta, self.moments, self.eps, self.relu),
            y=y,
            fixed=self.fixed,
            y_in_place=self._recomputed,
            out_gamma=out_gamma,
            out_beta=out_beta,
        )
        self._drop_output()
        self.ready(1, out_gamma)
        self.ready(2, out_beta)
        return found[: len(self.inputs)]


def batch_normalization(
    x: Any,
    gamma: Any,
    beta: Any,
    *,
    eps: float = 2e-5,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    decay: float = 0.9,
    axis: Axis = None,
    relu: bool = False,
    residual: Any = None,
) -> Any:
    """Normalisation with this batch's statistics; running ones are updated in place if given.

    Then, beyond Chainer's: its ReLU, or the ReLU of its sum with a residual.
    """
    reason = not_covered(x, gamma, beta, axis, residual, running_mean, running_var)
    if left_to_chainer("batch_normalization", reason):
        y = stock.batch_normalization(
            x,
            gamma,
            beta,
            eps=eps,
            running_mean=running_mean,
            running_var=running_var,
            decay=decay,
            axis=axis,
        )
        return _stock_relu(y, relu, residual)
    images = array_of(x)
    if images.size == images.shape[1]:
        warnings.warn(
            "with a single number a channel, normalisation gives always beta", stacklevel=2
        )
    running = running_statistics(running_mean, running_var, decay)
    node = BatchNormalization(eps, relu=relu, running=running)
    return node.apply(_inputs(x, gamma, beta, residual))[0]


def batch_normalization_relu(x: Any, gamma: Any, beta: Any, **options: Any) -> Any:
    """relu(batch_normalization(x, ...)), without keeping what is between them."""
    return batch_normalization(x, gamma, beta, relu=True, **options)


def batch_normalization_add_relu(
    x: Any, residual: Any, gamma: Any, beta: Any, **options: Any
) -> Any:
    """relu(batch_normalization(x, ...) + residual), without keeping what is between them."""
    return batch_normalization(x, gamma, beta, residual=residual, **options)


def running_statistics(mean: Array | None, var: Array | None, decay: float) -> Running | None:
    """The running statistics to be updated, if they are given, both."""
    return None if mean is None or var is None else Running(mean, var, decay)


def fixed_batch_normalization(
    x: Any,
    gamma: Any,
    beta: Any,
    mean: Any,
    var: Any,
    eps: float = 2e-5,
    axis: Axis = None,
    *,
    relu: bool = False,
    residual: Any = None,
) -> Any:
    """Normalisation with given statistics, which get no gradient; then as batch_normalization."""
    reason = not_covered(x, gamma, beta, axis, residual) or needs_gradient(mean, var)
    if left_to_chainer("fixed_batch_normalization", reason):
        y = stock.fixed_batch_normalization(x, gamma, beta, mean, var, eps=eps, axis=axis)
        return _stock_relu(y, relu, residual)
    moments = Moments(chainer.as_array(mean), chainer.as_array(var))
    node = BatchNormalization(eps, relu=relu, moments=moments)
    return node.apply(_inputs(x, gamma, beta, residual))[0]


def fixed_batch_normalization_relu(
    x: Any, gamma: Any, beta: Any, mean: Any, var: Any, **options: Any
) -> Any:
    """relu(fixed_batch_normalization(x, ...)), without keeping what is between them."""
    return fixed_batch_normalization(x, gamma, beta, mean, var, relu=True, **options)


def fixed_batch_normalization_add_relu(
    x: Any, residual: Any, gamma: Any, beta: Any, mean: Any, var: Any, **options: Any
) -> Any:
    """relu(fixed_batch_normalization(x, ...) + residual), without keeping what is between them."""
    return fixed_batch_normalization(x, gamma, beta, mean, var, residual=residual, **options)


def _inputs(x: Any, gamma: Any, beta: Any, residual: Any) -> tuple[Any, ...]:
    return (x, gamma, beta) if residual is None else (x, gamma, beta, residual)


def _stock_relu(y: Any, relu: bool, residual: Any) -> Any:
    if residual is not None:
        return stock.relu(y + residual)
    return stock.relu(y) if relu else y


def needs_gradient(*statistics: Any) -> str | None:
    variables = [s for s in statistics if isinstance(s, chainer.Variable) and s.requires_grad]
    return "gradients of mean and variance" if variables else foreign(*statistics)


def not_covered(x: Any, gamma: Any, beta: Any, axis: Axis, *others: Any) -> str | None:
    """Why the kernels cannot take these, if they cannot; others may be None."""
    axes = (axis,) if isinstance(axis, int) else axis
    dimensions, of_gamma = array_of(x).ndim, array_of(gamma).ndim
    if dimensions not in (2, 4) or of_gamma != 1:
        return f"{dimensions}-dimensional input and {of_gamma}-dimensional gamma"
    if axes is not None and tuple(axes) != (0, 2, 3)[: dimensions - 1]:
        return f"axis={axis}"
    return foreign(x, gamma, beta, *others)
