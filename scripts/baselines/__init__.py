"""The baselines edgeddl is compared with. Each runs in its own process and answers over a pipe.

`serve` and `torch_models` are also imported by PyTorch's environment, which has no edgeddl.
"""
