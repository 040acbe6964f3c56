"""Trains the same runs with different kernels: see scripts/compare-accuracy.

`torch_worker` is imported by PyTorch's environment, which has no edgeddl.
"""
