"""Batch normalisation, as chainer.functions.batch_normalization and its fixed variant.

Both can include what usually follows, in the same pass over memory: a ReLU, or the addition of a
residual and a ReLU.
"""

from __future__ import annotations

import warnings
from typing import Any

from edgeddl import kernels
from edgeddl.chainer_compat import chainer
from edgeddl.functions.node import (
    Array,
    Node,
    array_of,
    falls_back_to_chainer,
    stock,
    unsupported_arrays,
)
from edgeddl.kernels.batch_statistics import (
    BatchStatistics,
    NormalizationGradients,
    RunningStatistics,
)

Axis = int | tuple[int, ...] | None

# Backward recomputes chains of at most this many outputs, each the residual of the next; the output
# after such a chain is kept. Without a limit the work would grow with the square of the depth.
MAX_CHAIN = 3


class Normalizing(Node):
    """A function with a batch normalisation: the statistics are given, or those of this batch."""

    relu: bool
    gamma_index: int  # index of the input gamma; beta is the next one

    def __init__(
        self,
        eps: float,
        *,
        statistics: BatchStatistics | None = None,
        running: RunningStatistics | None = None,
        **geometry: Any,
    ) -> None:
        super().__init__(**geometry)
        self.eps, self.statistics, self.running = eps, statistics, running
        self.fixed = statistics is not None

    def normalization_gradients(
        self, wanted: set[int], x: Array, gy: Array, gamma: Array, beta: Array, **options: Any
    ) -> NormalizationGradients:
        """The gradients, those of gamma and beta in the sink's views if it has any."""
        assert self.statistics is not None
        index = self.gamma_index
        out_gamma = self.view_for(index) if index in wanted else None
        out_beta = self.view_for(index + 1) if index + 1 in wanted else None
        found = kernels.batch_normalization_backward(
            *(x, gy, gamma, beta, self.statistics, self.eps, self.relu),
            fixed=self.fixed,
            out_gamma=out_gamma,
            out_beta=out_beta,
            **options,
        )
        self.ready(index, out_gamma)
        self.ready(index + 1, out_beta)
        return found


class BatchNormalization(Normalizing):
    """y = gamma * (x - mean) / sqrt(var + eps) + beta.

    With `relu`, y is the ReLU of this; with a fourth input, the residual, the ReLU of their sum.

    y is not kept here nor, if it is large, by the functions that use it: backward recomputes it
    from x and the residual in a pass over memory. Of a network's large activations, only the
    results of convolutions are then kept. Backward of a ReLU without a residual needs no y: it
    finds the zeros from x.
    """

    gamma_index = 1
    _chain = 0  # length of the chain of recomputed outputs that ends here
    _recomputed = False  # the output's array was recomputed
    _done = False  # backward has run

    def __init__(self, eps: float, *, relu: bool = False, **statistics: Any) -> None:
        super().__init__(eps, **statistics)
        self.relu = relu

    def forward(self, inputs: tuple[Array, ...]) -> tuple[Array]:
        self.retain_inputs(tuple(range(len(inputs))))
        self.needs_output = len(inputs) == 4
        y, self.statistics = self._normalize(*inputs, running=self.running)
        return (y,)

    def _normalize(
        self,
        x: Array,
        gamma: Array,
        beta: Array,
        residual: Array | None = None,
        *,
        in_place: bool = False,
        running: RunningStatistics | None = None,
    ) -> tuple[Array, BatchStatistics]:
        return kernels.batch_normalization_forward(
            x, gamma, beta, self.statistics, self.eps, self.relu, residual, in_place, running
        )

    def drops(self, index: int, arrays: tuple[Array, ...]) -> bool:
        return index == 3 or super().drops(index, arrays)

    def keep(self, arrays: tuple[Array, ...]) -> None:
        super().keep(arrays)
        self._chain = 1
        for source in self.sources.values():
            self._chain = max(self._chain, 1 + source._chain)
        self.recomputable = self._chain <= MAX_CHAIN

    def output_again(self) -> Array:
        """The output, recomputed if it was not kept, once for all functions that use it."""
        output = self.outputs[0]()
        variable = output.get_variable_or_none()
        if variable is not None:
            return variable.array
        if output.data is None:
            output.data = self._recompute()
            self._recomputed = True
        return output.data

    def _recompute(self) -> Array:
        """y; a residual that is recomputed for it is overwritten: it is needed again only later."""
        x, gamma, beta = (self.retained_input(index) for index in (0, 1, 2))
        if len(self.inputs) == 3:
            return self._normalize(x, gamma, beta)[0]
        kept = self.inputs[3].data
        residual = self.sources[3]._recompute() if kept is None else kept
        return self._normalize(x, gamma, beta, residual, in_place=kept is None)[0]

    def _drop_output(self) -> None:
        """Free the recomputed output: backward of all functions that use it has run."""
        if self._recomputed:
            self.outputs[0]()._data = None  # the property would also delete shape and dtype
        self._recomputed, self._done = False, True

    def unchain(self) -> None:
        """Leave the graph, but keep the output if a function that follows still needs it."""
        output = self.outputs[0]()
        if output is not None and not self._done:
            output.data = self.output_again()
        super().unchain()

    def gradients(self, wanted: set[int], gy: Array) -> tuple[Array | None, ...]:
        x, gamma, beta = self.retained_input(0), self.retained_input(1), self.retained_input(2)
        y = self.output_again() if self.needs_output else None
        found = self.normalization_gradients(
            wanted, x, gy, gamma, beta, y=y, y_in_place=self._recomputed
        )
        self._drop_output()
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

    Beyond Chainer's: with `relu`, its ReLU; with `residual`, the ReLU of their sum.
    """
    reason = unsupported(x, gamma, beta, axis, residual, running_mean, running_var)
    if falls_back_to_chainer("batch_normalization", reason):
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
            "with one number per channel, normalisation always returns beta", stacklevel=2
        )
    running = running_statistics(running_mean, running_var, decay)
    node = BatchNormalization(eps, relu=relu, running=running)
    return node.apply(_inputs(x, gamma, beta, residual))[0]


def batch_normalization_relu(x: Any, gamma: Any, beta: Any, **options: Any) -> Any:
    """relu(batch_normalization(x, ...)), without the intermediate array."""
    return batch_normalization(x, gamma, beta, relu=True, **options)


def batch_normalization_add_relu(
    x: Any, residual: Any, gamma: Any, beta: Any, **options: Any
) -> Any:
    """relu(batch_normalization(x, ...) + residual), without the intermediate array."""
    return batch_normalization(x, gamma, beta, residual=residual, **options)


def running_statistics(
    mean: Array | None, var: Array | None, decay: float
) -> RunningStatistics | None:
    """The running statistics to update, if both are given."""
    return None if mean is None or var is None else RunningStatistics(mean, var, decay)


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
    reason = unsupported(x, gamma, beta, axis, residual) or needs_gradient(mean, var)
    if falls_back_to_chainer("fixed_batch_normalization", reason):
        y = stock.fixed_batch_normalization(x, gamma, beta, mean, var, eps=eps, axis=axis)
        return _stock_relu(y, relu, residual)
    statistics = BatchStatistics(chainer.as_array(mean), chainer.as_array(var))
    node = BatchNormalization(eps, relu=relu, statistics=statistics)
    return node.apply(_inputs(x, gamma, beta, residual))[0]


def fixed_batch_normalization_relu(
    x: Any, gamma: Any, beta: Any, mean: Any, var: Any, **options: Any
) -> Any:
    """relu(fixed_batch_normalization(x, ...)), without the intermediate array."""
    return fixed_batch_normalization(x, gamma, beta, mean, var, relu=True, **options)


def fixed_batch_normalization_add_relu(
    x: Any, residual: Any, gamma: Any, beta: Any, mean: Any, var: Any, **options: Any
) -> Any:
    """relu(fixed_batch_normalization(x, ...) + residual), without the intermediate array."""
    return fixed_batch_normalization(x, gamma, beta, mean, var, residual=residual, **options)


def _inputs(x: Any, gamma: Any, beta: Any, residual: Any) -> tuple[Any, ...]:
    return (x, gamma, beta) if residual is None else (x, gamma, beta, residual)


def _stock_relu(y: Any, relu: bool, residual: Any) -> Any:
    if residual is not None:
        return stock.relu(y + residual)
    return stock.relu(y) if relu else y


def needs_gradient(*statistics: Any) -> str | None:
    """Why the kernels cannot use these statistics, if they cannot."""
    variables = [s for s in statistics if isinstance(s, chainer.Variable) and s.requires_grad]
    return "gradients of mean and variance" if variables else unsupported_arrays(*statistics)


def unsupported(x: Any, gamma: Any, beta: Any, axis: Axis, *others: Any) -> str | None:
    """Why the kernels cannot take these inputs, if they cannot; others may be None."""
    axes = (axis,) if isinstance(axis, int) else axis
    dimensions, of_gamma = array_of(x).ndim, array_of(gamma).ndim
    if dimensions not in (2, 4) or of_gamma != 1:
        return f"{dimensions}-dimensional input and {of_gamma}-dimensional gamma"
    if axes is not None and tuple(axes) != (0, 2, 3)[: dimensions - 1]:
        return f"axis={axis}"
    return unsupported_arrays(x, gamma, beta, *others)
