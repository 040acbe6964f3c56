"""Worker: single convolutions of edgeddl, called as training calls them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from baselines.serve import serve_steps

from bench_kernels.edgeddl_kernels import chosen_kernels, peak_gflops
from bench_kernels.layers import Layer
from edgeddl import kernels
from edgeddl.kernels.layout import channels_last, kernel_order
from edgeddl.kernels.window import Window


def prepare(layer: Layer, direction: str) -> Callable[[], object]:
    """Return a kernel call; weight gradients are written to a given array, as into a bucket."""
    rng = np.random.default_rng(0)
    x = channels_last(rng.standard_normal(layer.x_shape, np.float32))
    W = kernel_order(rng.standard_normal(layer.W_shape, np.float32))
    gy = channels_last(rng.standard_normal(layer.y_shape, np.float32))
    gW = np.empty_like(W)
    k, s, p, groups = layer.ksize, layer.stride, layer.padding, layer.groups
    window = Window(k, k, s, s, p, p)
    calls: dict[str, Callable[[], object]] = {
        "forward": lambda: kernels.convolution_forward(x, W, None, window, groups),
        "input gradient": lambda: kernels.convolution_input_gradient(
            gy, W, x.shape, window, groups
        ),
        "weight gradient": lambda: kernels.convolution_weight_gradient(
            x, gy, window, groups, out=gW
        ),
    }
    return calls[direction]


if __name__ == "__main__":
    serve_steps(prepare, chosen_kernels=chosen_kernels, peak_gflops=peak_gflops)
