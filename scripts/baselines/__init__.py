"""What edgeddl is compared with, each in a process of its own that answers over a pipe.

`serve` and `torch_models` are also imported by PyTorch's environment, which has no edgeddl.
"""
