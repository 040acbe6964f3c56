"""Keeps a convolution's weights, their gradient and the optimizer's state in one memory order.

An update reads all of them together. NumPy takes three to four times as long if one of them has a
different order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeddl.functions.node import array_of
from edgeddl.kernels.layout import in_kernel_order, kernel_order


def order_weights(W: Any) -> None:
    """Bring the arrays of the parameter W (K, C, kh, kw) into the kernels' order.

    Chainer creates a new parameter's gradient in C order, and `load_npz` loads an optimizer's state
    into arrays in C order.
    """
    array = array_of(W)
    if W.layout is not None or not isinstance(array, np.ndarray):
        return
    if not in_kernel_order(array):
        W.array = kernel_order(array)
    if W._grad is not None and not in_kernel_order(W._grad):  # even if it is not valid yet
        W._grad, W._grad_var = kernel_order(W._grad), None
    state = (W.update_rule and W.update_rule.state) or {}
    for name, value in state.items():
        is_like_W = isinstance(value, np.ndarray) and value.shape == array.shape
        if is_like_W and not in_kernel_order(value):
            state[name] = kernel_order(value)
