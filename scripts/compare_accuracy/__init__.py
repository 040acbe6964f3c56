"""Trains the same runs with different kernels: see scripts/compare-accuracy.

`torch_side` is imported by PyTorch's environment, which has no edgeddl.
"""
