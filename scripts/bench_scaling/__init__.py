"""Measures how training scales over nodes, for edgeddl and baselines: see scripts/bench-scaling.

`worker` and `torch_worker` are also imported by PyTorch's environment, which has no edgeddl.
"""
