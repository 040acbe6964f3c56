"""Worker: single convolutions of PyTorch. Arguments: threads and memory format."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from baselines.serve import serve_steps
from baselines.torch_models import MEMORY_FORMATS

from bench_kernels.layers import Layer


def prepare(layer: Layer, direction: str) -> Callable[[], object]:
    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape).to(memory_format=memory_format)

    x, W, gy = random(*layer.x_shape), random(*layer.W_shape), random(*layer.y_shape)
    s, p, groups = layer.stride, layer.padding, layer.groups
    if direction == "forward":
        return lambda: F.conv2d(x, W, None, s, p, groups=groups)
    wanted = [direction == "input gradient", direction == "weight gradient", False]
    backward = torch.ops.aten.convolution_backward
    # bias sizes, stride, padding, dilation, transposed, output padding, groups, wanted gradients
    geometry = (None, [s, s], [p, p], [1, 1], False, [0, 0], groups, wanted)
    return lambda: backward(gy, x, W, *geometry)


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    torch.set_grad_enabled(False)
    memory_format = MEMORY_FORMATS[sys.argv[2]]
    serve_steps(prepare)
