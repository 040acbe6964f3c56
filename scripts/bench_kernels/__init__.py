"""Compares edgeddl's kernels with stock Chainer and PyTorch: see scripts/bench-kernels.

`layers` and the modules named torch_* are also imported by PyTorch's environment, which has no
edgeddl.
"""
