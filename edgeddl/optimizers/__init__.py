"""Update rules over flat arrays."""

from edgeddl.optimizers.momentum_sgd import MomentumSGD, Segment

__all__ = ["MomentumSGD", "Segment"]
